// What the client does in the clear: from inputs to slots, and from slots to answers.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "atlasc/interface.hpp"

namespace atlasc {

using Shape = std::vector<std::size_t>;

/// Refuses (Error) raw inputs that are not [count, ...] of 1 to a batch, or of another count than
/// that of the inputs before, which 0 leaves open.
void require_shape(const Shape& found, const std::string& name, const std::string& source,
                   const Shape& shape, std::size_t& count);

/// Raw inputs [count, ...] as a whole batch, filled with copies of the first.
Tensor whole_batch(Tensor tensor, const std::string& name, const std::string& source,
                   const Shape& shape, std::size_t& count);

/// What is encrypted of a whole batch: centred and scaled. Throws Error: a row is not finite or,
/// unless `unchecked`, far above what calibration saw. Warns on standard error of other rows above
/// it; they are a `doubt`, which stays as it is where there are none.
Tensor prepared(Tensor tensor, const EncryptedInput& input, const std::string& source,
                std::size_t count, bool unchecked, std::string& doubt);

/// Refuses (Error) a mask with other numbers than 0 and 1, or with a row of zeros.
void require_mask(const Tensor& tensor, const std::string& name, const std::string& source);

/// Slots of what was prepared.
std::vector<Vector> packed_slots(Tensor tensor, const EncryptedInput& input);

/// Slots of an answer that cannot be right: calibration never came near them, or they differ from
/// another copy of their number.
struct Outside {
    std::size_t elements = 0;
    std::size_t of = 0;
    std::set<std::size_t> rows;
};

/// The tensor that slots hold, its padding features left out, as the client's program has it; adds
/// what is outside.
Tensor answer_of(const std::vector<Vector>& slots, const Output& output, std::size_t count,
                 Outside& outside);

/// Row numbers for a message, the first few of many.
std::string rows_text(const std::set<std::size_t>& rows);

}  // namespace atlasc
