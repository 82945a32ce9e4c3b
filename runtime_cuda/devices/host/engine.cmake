# CKKS on the machine's own processors, for the target atlasc_runtime.
target_sources(atlasc_runtime PRIVATE
  devices/host/check_kernels.cpp
  devices/host/device.cpp
  devices/host/fast_kernels.cpp
  devices/host/inner_products.cpp
  devices/host/repeated.cpp
  devices/host/rotated_products.cpp
  devices/host/transforms.cpp
  devices/host/vectors/avx2.cpp
  devices/host/vectors/cpu.cpp
  devices/host/vectors/ifma.cpp
  devices/host/vectors/ntt.cpp)
# Kernels are ordinary functions here, and those of different files have the same names.
set_source_files_properties(${ckks_sources} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
set(kernels ${ckks_sources})
list(FILTER kernels INCLUDE REGEX "\\.cu$")
set_source_files_properties(${kernels} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "-x;c++")
set_source_files_properties(devices/host/vectors/avx2.cpp devices/host/vectors/ifma.cpp
  PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
target_include_directories(atlasc_runtime PRIVATE devices/host)
target_compile_definitions(atlasc_runtime PRIVATE ATLASC_DEVICE_NAME="cpu")
