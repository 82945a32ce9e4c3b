// Parameters that bootstrap, with the functions of the bootstrap: what a program needs that Python did
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
    KeyPlan keys;                             ///< those of the bootstrap
    std::shared_ptr<const Record> bootstrap;  ///< for `Engine::bootstrap_by`

    /// These keys, and a program's own for rotations by `amounts` to the left.
    KeyPlan keys_with(const std::vector<std::size_t>& amounts) const;
};

/// The set of a file that atlasc/emit/parameter_set.py wrote. Throws Error.
ParameterSet read_parameter_set(const TensorFile& file);

/// The set that the library carries, `fourteen_levels_40`: N = 2^16, 32,768 slots, 14 products after a
/// bootstrap, 128 bits of security (docs/bootstrapping.md). It is not in the runtime of an emitted
/// project, which has what its program needs.
ParameterSet carried_parameter_set();

}  // namespace atlasc
