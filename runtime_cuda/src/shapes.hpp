// Shapes of arrays that kernels divide and index by.
#pragma once

#include "atlasc/kernels.hpp"

namespace atlasc {

/// Refuses (Error) arrays of a linear layer that its loops would leave.
void require_shapes(const Context& context, const Linear& arrays, const Packed& x,
                    const Layout& layout);

}  // namespace atlasc
