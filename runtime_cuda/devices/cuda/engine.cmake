# CKKS on a CUDA GPU, for the target atlasc_runtime.
include(devices/cuda/compiler.cmake)

target_sources(atlasc_runtime PRIVATE devices/cuda/device.cpp)
target_include_directories(atlasc_runtime PRIVATE devices/cuda)
target_compile_definitions(atlasc_runtime PRIVATE ATLASC_DEVICE_NAME="${ATLASC_ENGINE}")
target_compile_features(atlasc_runtime PRIVATE cuda_std_17)
if(ATLASC_ENGINE STREQUAL cuda)
  target_sources(atlasc_runtime PRIVATE devices/cuda/repeated.cpp devices/cuda/transforms.cu)
else()
  include(devices/phantom/engine.cmake)
endif()
