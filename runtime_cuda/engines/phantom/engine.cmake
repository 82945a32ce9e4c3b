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

target_sources(atlasc_runtime PRIVATE
  engines/phantom/chain.cpp
  engines/phantom/ciphertext_files.cpp
  engines/phantom/device.cpp
  engines/phantom/encoder.cu
  engines/phantom/key_files.cpp
  engines/phantom/key_maker.cu
  engines/phantom/key_switch.cu
  engines/phantom/keys.cpp
  engines/phantom/phantom_backend.cpp
  engines/phantom/phantom_engine.cpp
  engines/phantom/plaintext_cache.cpp
  engines/phantom/polynomials.cu
  engines/phantom/raise.cu
  engines/phantom/ring.cu
  engines/phantom/sampling.cu
  engines/phantom/secret_key.cu)
target_compile_features(atlasc_runtime PRIVATE cuda_std_17)
target_link_libraries(atlasc_runtime PUBLIC Phantom::Phantom CUDA::cudart)
