// What a client does in the clear: from inputs to slots, from slots to answers, and the checks on both.
//
// A ciphertext that exploded decrypts to numbers like any other. So a client refuses inputs that are
// far larger than those of the calibration, and answers far above its largest one. Many slots of an
// answer hold the same number: the layout replicates values, and the padding of a batch copies the
// first input. Where they differ by more than any noise, the ciphertext exploded or is another one.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "atlasc/interface.hpp"

namespace atlasc {

using Shape = std::vector<std::size_t>;

/// Tensors by the name of an input or output.
using Tensors = std::map<std::string, Tensor>;

/// Slots [ciphertexts, slots] by the name of an input or output.
using NamedSlots = std::map<std::string, std::vector<Vector>>;

/// Times the greatest magnitude of the calibration: inputs and answers beyond it are refused. Other
/// inputs may be larger than those of the calibration, but a polynomial that explodes exceeds any such
/// factor at once.
constexpr double outside_factor = 4.0;

/// Times that magnitude: larger inputs get a warning. Ranges have at least this margin.
constexpr double large_factor = 1.05;

/// Share of that magnitude by which two copies of a number may differ.
constexpr double copies_factor = 1.0 / 16;

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
    std::size_t count;  ///< inputs of the batch that are real; the others copy the first
    /// Why the bound on the errors may not hold for the answer: an input that is larger than those of
    /// the calibration. Empty where there is none.
    std::string doubt{};
};

/// Decrypted answers, and which of them cannot be right.
struct Answers {
    Tensors outputs;                        ///< [count, ...]
    std::map<std::size_t, double> refused;  ///< by row: the share of its slots that cannot be right
};

/// Refuses (Error) an input that is not [count, ...] of 1 to a batch, or of another count than that of
/// the inputs before, which 0 leaves open.
void require_shape(const Shape& found, const std::string& name, const Shape& shape,
                   std::size_t& count);

/// For each row of inputs by name, [rows, ...]: the greatest number that is encrypted of it, in units of
/// what the calibration saw; infinite where one is not finite.
Vector reaches(const Interface& interface, const Tensors& inputs);

/// What is to be said of an input that reaches so much, in words; empty where it is no larger than those
/// of the calibration.
std::string reach_text(double reached);

/// Slots of inputs by name, [count, ...] of 1 to a batch. Throws Error: one is missing, of another
/// shape, not finite or, unless `unchecked`, far above what the calibration saw; a mask has another
/// number than 0 and 1, or nothing but padding.
Packed packed(const Interface& interface, const Tensors& inputs, bool unchecked);

/// Answers to `count` inputs from the slots of whole batches.
Answers answers(const Interface& interface, const NamedSlots& slots, std::size_t count);

}  // namespace atlasc
