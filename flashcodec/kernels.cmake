# The kernels for GPUs, compiled by nvcc where there is one and put into the module as bytes; without it the module has
# none, and decodes on cores. The library flashcodec_gpu has them, and what loads the driver.
find_program(FLASHCODEC_NVCC nvcc HINTS $ENV{CUDA_HOME}/bin $ENV{CUDA_PATH}/bin /usr/local/cuda/bin)
set(embedded ${CMAKE_CURRENT_BINARY_DIR}/point_kernels.cpp)
set(kernels ${CMAKE_CURRENT_SOURCE_DIR}/csrc/engines/nvdec/point_kernels.cu)
set(embed ${CMAKE_COMMAND} -DOUTPUT=${embedded})

if(FLASHCODEC_NVCC)
  # Machine code for each generation that nvcc knows, and code for later ones to compile.
  execute_process(COMMAND ${FLASHCODEC_NVCC} --list-gpu-code OUTPUT_VARIABLE known ERROR_QUIET)
  set(targets -gencode arch=compute_80,code=compute_80)
  foreach(generation 80 90 100)
    if(known MATCHES "sm_${generation}")
      list(APPEND targets -gencode arch=compute_${generation},code=sm_${generation})
    endif()
  endforeach()
  set(compiled ${CMAKE_CURRENT_BINARY_DIR}/point_kernels.fatbin)
  file(GLOB headers CONFIGURE_DEPENDS csrc/pixels/*.h csrc/pixels/points/*.h)
  add_custom_command(OUTPUT ${compiled}
    COMMAND ${FLASHCODEC_NVCC} -std=c++20 -O3 -fatbin ${targets} -I ${CMAKE_CURRENT_SOURCE_DIR}/csrc -o ${compiled} ${kernels}
    DEPENDS ${kernels} ${headers} COMMENT "Compiling FlashCodec's kernels for GPUs" VERBATIM)
  list(APPEND embed -DINPUT=${compiled})
endif()

add_custom_command(OUTPUT ${embedded}
  COMMAND ${embed} -P ${CMAKE_CURRENT_SOURCE_DIR}/embed.cmake
  DEPENDS ${compiled} ${CMAKE_CURRENT_SOURCE_DIR}/embed.cmake VERBATIM)

add_library(flashcodec_gpu STATIC ${embedded} ../native/cuda/driver.cpp ../native/cuda/primary_context.cpp
  ../native/cuda/visible_gpus.cpp)
target_include_directories(flashcodec_gpu PRIVATE csrc ${PROJECT_SOURCE_DIR})
target_compile_options(flashcodec_gpu PRIVATE ${UNIFIED_WARNINGS} -fvisibility=hidden)
target_link_libraries(flashcodec_gpu PUBLIC ${CMAKE_DL_LIBS})
