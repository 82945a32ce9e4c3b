# CUDA's compiler and runtime, for the target atlasc_runtime.
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES AND NOT DEFINED ENV{CUDAARCHS})
  set(CMAKE_CUDA_ARCHITECTURES 80 89 90 CACHE STRING "CUDA architectures")
endif()
# Phantom has to see the errors of this engine, and this engine those of Phantom: one runtime for
# both. Without Phantom nothing of CUDA but the driver is needed where the engine runs.
if(ATLASC_ENGINE STREQUAL phantom)
  set(CMAKE_CUDA_RUNTIME_LIBRARY Shared CACHE STRING "CUDA runtime: Shared or Static")
else()
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static CACHE STRING "CUDA runtime: Shared or Static")
endif()
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)
if(CMAKE_CUDA_RUNTIME_LIBRARY STREQUAL Static)
  target_link_libraries(atlasc_runtime PUBLIC CUDA::cudart_static)
else()
  target_link_libraries(atlasc_runtime PUBLIC CUDA::cudart)
endif()
