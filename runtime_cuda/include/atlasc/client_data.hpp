// The client's cleartext work: from inputs to slots, from slots to answers, and the checks of both.
//
// A ciphertext that exploded decrypts to numbers like any other. So a client refuses inputs far
// larger than those of the calibration, and answers far above its largest one. Many slots of an
// answer hold the same number, because the layout replicates values and the padding of a batch
// copies the first input. If such copies differ by more than noise, the ciphertext exploded or is
// the wrong one.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "atlasc/interface.hpp"

namespace atlasc {

using Shape = std::vector<std::size_t>;

/// Name of an input or output -> tensor.
using Tensors = std::map<std::string, Tensor>;

/// Name of an input or output -> slots [ciphertexts, slots].
using NamedSlots = std::map<std::string, std::vector<Vector>>;

/// Inputs and answers above this many times the greatest magnitude of the calibration are refused.
/// Inputs may be somewhat larger than those of the calibration, but a polynomial that explodes
/// exceeds any such factor at once.
constexpr double outside_factor = 4.0;

/// Inputs above this many times that magnitude get a warning. Ranges have at least this margin.
constexpr double large_factor = 1.05;

/// Greatest difference between two copies of a number, as a share of that magnitude.
constexpr double copies_factor = 1.0 / 16;

/// The inputs that may leave a client in the clear: the mask of a text, and the place of a token of
/// it. A program comes from whoever runs the server, and cannot add to them.
constexpr const char* mask_name = "attention_mask";
constexpr const char* position_name = "position";

/// What a user does about an input that is far too large.
constexpr const char* large_remedy =
    "prepare it like the calibration data, for example pixels / 255; --unchecked encrypts it anyway";

/// What a user does about an input that is not finite.
constexpr const char* not_finite_remedy =
    "leave it out, or repair it: NaN and infinite values spoil a whole batch";

/// Inputs, ready to be encrypted.
struct Packed {
    NamedSlots slots;
    Tensors publics;    ///< inputs that the server sees: masks
    std::size_t count;  ///< real inputs of the batch; the others copy the first
    /// Why the bound on the errors may not hold for the answer (an input larger than those of the
    /// calibration). Empty if there is no such reason.
    std::string doubt{};
};

/// Decrypted answers, and which of them cannot be right.
struct Answers {
    Tensors outputs;                        ///< [count, ...]
    std::map<std::size_t, double> refused;  ///< row -> share of its slots that cannot be right
};

/// Refuse (Error) an input that is not [count, ...] with 1 to batch rows, or whose count differs
/// from that of earlier inputs; `count` is 0 for the first input.
void require_shape(const Shape& found, const std::string& name, const Shape& shape,
                   std::size_t& count);

/// For each row of inputs by name, [rows, ...]: its greatest number before encryption, as a
/// multiple of the calibration's; infinite if a number is not finite.
Vector reaches(const Interface& interface, const Tensors& inputs);

/// The warning about an input whose magnitude is `reached` times that of the calibration; empty if the
/// input is no larger than those of the calibration.
std::string reach_text(double reached);

/// Throws Error for a program that asks for another input in the clear than a mask and a position of
/// its shape, [batch, places]; or for one that is encrypted, too.
void require_closed(const Interface& interface);

/// Slots of inputs by name, [count, ...] with 1 to batch rows. Throws Error: as `require_closed`; an
/// input is missing, has another shape, is not finite or (unless `unchecked`) is far above the
/// calibration; a mask has a number other than 0 and 1, or masks everything; or a position is not
/// one place.
Packed packed(const Interface& interface, const Tensors& inputs, bool unchecked);

/// Answers to `count` inputs from the slots of whole batches.
Answers answers(const Interface& interface, const NamedSlots& slots, std::size_t count);

}  // namespace atlasc
