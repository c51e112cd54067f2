# Writes OUTPUT, a source file with the bytes of the file INPUT; none if there is no INPUT.
set(bytes "")
if(DEFINED INPUT)
  file(READ ${INPUT} bytes HEX)
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
endif()
set(code "alignas(16) constexpr unsigned char kCode[] = {${bytes}};")
set(result "kCode")
if(bytes STREQUAL "")
  set(code "")
  set(result "{}")
endif()
file(WRITE ${OUTPUT} "#include \"engines/nvdec/gpu_points.h\"

namespace flashcodec {

namespace {
${code}
}  // namespace

std::span<const unsigned char> point_kernels() { return ${result}; }

}  // namespace flashcodec
")
