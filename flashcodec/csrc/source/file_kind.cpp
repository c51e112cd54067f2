#include "source/file_kind.h"

#include <algorithm>
#include <cctype>
#include <string_view>
#include <vector>

namespace flashcodec {

namespace {

using namespace std::string_view_literals;

constexpr auto kConvert = "convert it to JPEG or AVIF";
constexpr auto kUnpack = "unpack it first";
constexpr auto kNoVideo = "there is no video in it";
constexpr auto kDownload = "the answer to a failed download may be saved in the video's place";
constexpr auto kPlaylist = "playlists are not followed, give the video itself";

struct Signature {
  std::string_view bytes;  // '?': any
  FileKind kind;
};

FileKind image(const char* name) { return {.name = name, .advice = "", .media = true, .image = true}; }
FileKind other_image(const char* name) { return {.name = name, .advice = kConvert, .media = true}; }
FileKind sound(const char* name) { return {.name = name, .advice = kNoVideo, .media = true}; }
FileKind archive(const char* name) { return {.name = name, .advice = kUnpack}; }

const std::vector<Signature>& signatures() {
  static const std::vector<Signature> table{
      {"\xff\xd8\xff"sv, image("a JPEG image")},
      {"\x89PNG\r\n"sv, image("a PNG image")},
      {"GIF8"sv, image("a GIF image")},
      {"RIFF????WEBP"sv, image("a WebP image")},
      {"BM????\0\0\0\0"sv, image("a BMP image")},
      {"II*\0"sv, image("a TIFF image")},
      {"MM\0*"sv, image("a TIFF image")},
      {"\0\0\1\0"sv, image("an ICO image")},
      {"P5\n"sv, image("a PGM image")},
      {"P6\n"sv, image("a PPM image")},
      {"????ftypavif"sv, image("an AVIF image")},
      {"????ftypavis"sv, image("an AVIF image")},
      {"????ftyphei"sv, other_image("a HEIC image")},
      {"????ftyphev"sv, other_image("a HEIC image")},
      {"????ftypmif1"sv, other_image("a HEIF image")},
      {"????ftypmsf1"sv, other_image("a HEIF image")},
      {"\xff\x0a"sv, other_image("a JPEG XL image")},
      {"\0\0\0\x0cJXL "sv, other_image("a JPEG XL image")},
      {"\0\0\0\x0cjP  "sv, other_image("a JPEG 2000 image")},
      {"8BPS"sv, other_image("a Photoshop image")},
      {"ID3"sv, sound("an MP3 file")},
      {"\xff\xfb"sv, sound("an MP3 file")},
      {"\xff\xf1"sv, sound("an AAC file")},
      {"\xff\xf9"sv, sound("an AAC file")},
      {"fLaC"sv, sound("a FLAC file")},
      {"RIFF????WAVE"sv, sound("a WAV file")},
      {"FORM????AIF"sv, sound("an AIFF file")},
      {"PK\3\4"sv, archive("a ZIP archive")},
      {"\x1f\x8b"sv, archive("a gzip archive")},
      {"BZh"sv, archive("a bzip2 archive")},
      {"\xfd"
       "7zXZ"sv,
       archive("an xz archive")},
      {"7z\xbc\xaf"sv, archive("a 7z archive")},
      {"Rar!\x1a"sv, archive("a RAR archive")},
      {"\x28\xb5\x2f\xfd"sv, archive("a Zstandard archive")},
      {"????moof"sv, {"a segment of a fragmented MP4", "put its initialization segment before it"}},
      {"????styp"sv, {"a segment of a fragmented MP4", "put its initialization segment before it"}},
      {"%PDF-"sv, {"a PDF document", ""}},
      {"\x93NUMPY"sv, {"an array of NumPy", ""}},
      {"\x89HDF"sv, {"an HDF5 file", ""}},
      {"PAR1"sv, {"a Parquet file", ""}},
      {"\x7f"
       "ELF"sv,
       {"a program", ""}},
  };
  return table;
}

// Texts begin so, in lower case and after white space.
const std::vector<Signature>& text_signatures() {
  static const std::vector<Signature> table{
      {"version https://git-lfs"sv, {"a Git LFS pointer", "`git lfs pull` fetches the file that it stands for"}},
      {"<!doctype html"sv, {"an HTML page", kDownload}},
      {"<html"sv, {"an HTML page", kDownload}},
      {"<svg"sv, other_image("an SVG image")},
      {"<mpd"sv, {"a DASH manifest", kPlaylist}},
      {"<"sv, {"an XML document", kDownload}},
      {"{"sv, {"a JSON document", kDownload}},
      {"["sv, {"a JSON document", kDownload}},
      {"#extm3u"sv, {"an M3U playlist", kPlaylist}},
  };
  return table;
}

bool begins(std::string_view bytes, std::string_view signature) {
  return bytes.size() >= signature.size() && std::ranges::equal(bytes.substr(0, signature.size()), signature,
                                                                [](char a, char b) { return b == '?' || a == b; });
}

std::optional<FileKind> find(const std::vector<Signature>& table, std::string_view bytes) {
  const auto found = std::ranges::find_if(table, [&](const Signature& s) { return begins(bytes, s.bytes); });
  if (found == table.end()) return std::nullopt;
  return found->kind;
}

bool is_text(std::string_view bytes) {
  return std::ranges::none_of(bytes, [](char c) {
    const auto code = static_cast<unsigned char>(c);
    return code == 0x7f || (code < 0x20 && std::isspace(code) == 0);
  });
}

// Without the byte order mark and white space at its beginning, and an XML declaration, in lower case.
std::string gist(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (lower.starts_with("\xef\xbb\xbf")) lower.erase(0, 3);
  const auto trim = [&] { lower.erase(0, lower.find_first_not_of(" \t\r\n")); };
  trim();
  if (!lower.starts_with("<?xml")) return lower;
  const size_t end = lower.find("?>");
  const std::string declaration = lower.substr(0, end);
  lower.erase(0, end == std::string::npos ? end : end + 2);
  trim();
  return lower.empty() ? declaration : lower;
}

}  // namespace

std::optional<FileKind> kind_of_file(std::span<const uint8_t> head) {
  constexpr size_t kTarMagic = 257;
  const std::string_view bytes(reinterpret_cast<const char*>(head.data()), head.size());
  if (auto kind = find(signatures(), bytes)) return kind;
  if (bytes.size() > kTarMagic && bytes.substr(kTarMagic).starts_with("ustar")) return archive("a tar archive");
  if (!bytes.empty() && std::ranges::all_of(bytes, [](char c) { return c == 0; })) {
    return FileKind{.name = "a file that begins with zeros only", .advice = "it was not written to its end"};
  }
  if (bytes.empty() || !is_text(bytes)) return std::nullopt;
  if (auto kind = find(text_signatures(), gist(bytes))) return kind;
  return FileKind{.name = "a text file", .advice = ""};
}

}  // namespace flashcodec
