# The transforms of Phantom-FHE in place of our own.
list(APPEND CMAKE_MODULE_PATH ${CMAKE_CURRENT_LIST_DIR})
find_package(Phantom MODULE REQUIRED)
target_sources(atlasc_runtime PRIVATE devices/host/repeated.cpp devices/phantom/transforms.cu)
target_link_libraries(atlasc_runtime PUBLIC Phantom::Phantom)
