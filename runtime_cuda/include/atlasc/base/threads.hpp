// Loops on all processors.
#pragma once

#include <cstddef>
#include <functional>

namespace atlasc {

/// Calls work(begin, end) for ranges that cover 0 .. count - 1, each of at least `grain` indices but
/// for the last; on several threads, and returns when all are done. `work` throws nothing. A call
/// from within `work` runs on its own thread.
void parallel(std::size_t count, std::size_t grain,
              const std::function<void(std::size_t, std::size_t)>& work);

}  // namespace atlasc
