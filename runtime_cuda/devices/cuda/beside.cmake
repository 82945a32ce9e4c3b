# The engine for a CUDA GPU beside that of the processors, for the target atlasc_runtime: the same
# sources once more, in files that include them, with another name of their namespace.
include(devices/cuda/compiler.cmake)

set(host ${ckks_sources})
list(FILTER host INCLUDE REGEX "[.]cpp$")
list(REMOVE_ITEM host ckks/ckks_backend.cpp)
set(kernels ${ckks_sources})
list(FILTER kernels INCLUDE REGEX "[.]cu$")
set(device ckks/ckks_backend.cpp devices/cuda/device.cpp devices/cuda/repeated.cpp
  devices/cuda/transforms.cu)
foreach(part host kernels device)
  list(TRANSFORM ${part} REPLACE "(.+)" "#include \"\\1\"")
  list(JOIN ${part} "\n" text)
  file(GENERATE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/cuda_${part}.cu CONTENT "${text}\n")
  list(APPEND parts ${CMAKE_CURRENT_BINARY_DIR}/cuda_${part}.cu)
endforeach()
add_library(atlasc_cuda OBJECT ${parts})
target_compile_features(atlasc_cuda PRIVATE cuda_std_17)
target_compile_definitions(atlasc_cuda PRIVATE
  ckks=ckks_cuda ckks_backend=cuda_backend ATLASC_DEVICE_NAME="cuda")
target_include_directories(atlasc_cuda PRIVATE . include devices/cuda)
target_compile_options(atlasc_cuda PRIVATE -Xcompiler=-fno-fast-math)
set_target_properties(atlasc_cuda PROPERTIES UNITY_BUILD OFF)
target_sources(atlasc_runtime PRIVATE $<TARGET_OBJECTS:atlasc_cuda>)
target_compile_definitions(atlasc_runtime PRIVATE ATLASC_CUDA_BESIDE)
