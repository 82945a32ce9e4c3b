// Parameter sets that bootstrap, with the functions of the bootstrap, for programs that Python did
// not compile.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "atlasc/base/tensor_file.hpp"
#include "atlasc/interface.hpp"
#include "atlasc/record.hpp"

namespace atlasc {

struct ParameterSet {
    std::string name;
    Parameters parameters;
    KeyPlan keys;                             ///< keys of the bootstrap
    std::shared_ptr<const Record> bootstrap;  ///< for `Engine::bootstrap_by`

    /// These keys, and a program's own keys for rotations by `amounts` to the left.
    KeyPlan keys_with(const std::vector<std::size_t>& amounts) const;
};

/// The set in a file that atlasc/emit/parameter_set.py wrote. Throws Error.
ParameterSet read_parameter_set(const TensorFile& file);

/// The set in the library, `fifteen_levels_40`: N = 2^16, 32,768 slots, level 18 after a
/// bootstrap, which begins at level 3, 128 bits of security (docs/bootstrapping.md). The runtime of an emitted project does
/// not have it, because the project has what its program needs.
ParameterSet carried_parameter_set();

}  // namespace atlasc
