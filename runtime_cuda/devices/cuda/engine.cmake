# The engine on Phantom-FHE, for the target atlasc_runtime.
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80 89 90 CACHE STRING "CUDA architectures")
endif()
# One CUDA runtime for this engine and for Phantom, so that an error in one is seen by the other.
set(CMAKE_CUDA_RUNTIME_LIBRARY Shared CACHE STRING "CUDA runtime: Shared or Static")
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)
list(APPEND CMAKE_MODULE_PATH ${CMAKE_CURRENT_LIST_DIR})
find_package(Phantom MODULE REQUIRED)

target_sources(atlasc_runtime PRIVATE devices/cuda/device.cpp devices/cuda/transforms.cu)
target_include_directories(atlasc_runtime PRIVATE devices/cuda)
target_compile_definitions(atlasc_runtime PRIVATE ATLASC_DEVICE_NAME="phantom")
target_compile_features(atlasc_runtime PRIVATE cuda_std_17)
target_link_libraries(atlasc_runtime PUBLIC Phantom::Phantom CUDA::cudart)
