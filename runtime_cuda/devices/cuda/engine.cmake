# CKKS on a CUDA GPU, for the target atlasc_runtime.
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80 89 90 CACHE STRING "CUDA architectures")
endif()
# One CUDA runtime for this engine and for a library, so that an error in one is seen by the other.
set(CMAKE_CUDA_RUNTIME_LIBRARY Shared CACHE STRING "CUDA runtime: Shared or Static")
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)

target_sources(atlasc_runtime PRIVATE devices/cuda/device.cpp)
target_include_directories(atlasc_runtime PRIVATE devices/cuda)
target_compile_definitions(atlasc_runtime PRIVATE ATLASC_DEVICE_NAME="${ATLASC_ENGINE}")
target_compile_features(atlasc_runtime PRIVATE cuda_std_17)
target_link_libraries(atlasc_runtime PUBLIC CUDA::cudart)
if(ATLASC_ENGINE STREQUAL cuda)
  target_sources(atlasc_runtime PRIVATE devices/cuda/transforms.cu)
else()
  include(devices/phantom/engine.cmake)
endif()
