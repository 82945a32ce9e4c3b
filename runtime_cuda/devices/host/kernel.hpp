// Kernels as function objects: one call of `operator()` for each index below a count.
#pragma once

#include <cstddef>

#include "atlasc/base/threads.hpp"

namespace atlasc::ckks {

/// Runs function(0), ..., function(count - 1), on all processors.
template <typename Function>
void launch(std::size_t count, const Function& function, const char*) {
    constexpr std::size_t grain = 4096;
    parallel(count, grain, [&function](std::size_t begin, std::size_t end) {
        for (std::size_t at = begin; at < end; ++at) {
            function(at);
        }
    });
}

}  // namespace atlasc::ckks

#include "devices/host/fast_kernels.hpp"
