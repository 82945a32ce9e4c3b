// The check of a device's transforms, when an engine starts.
#pragma once

#include <vector>

#include "ckks/ring/ring.hpp"

namespace atlasc::ckks {

/// Compares the transforms of a ring, both ways and modulo all its primes, with those of the host.
/// Throws Error: what differs, modulo which primes, on which device.
void check_transforms(const Ring& ring, const std::vector<Prime>& primes);

}  // namespace atlasc::ckks
