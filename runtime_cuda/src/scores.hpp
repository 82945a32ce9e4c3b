// Geometry of packed attention scores: which (batch, head, diagonal, query) a slot is.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "atlasc/context.hpp"

namespace atlasc {

/// 1 in some slots, 0 in the others.
using Mask = std::vector<char>;

/// The score of query i and key j lies on diagonal (j - i) mod n, in the slot of token i.
///
/// Scores of one query have no tokens: `s` is the key.
class Scores {
public:
    /// `baby`: a power of two, up to the diagonals of one half and of one ciphertext.
    explicit Scores(const Layout& layout, std::size_t baby = 1);

    const Layout layout;
    std::size_t tokens;        ///< n: padded number of tokens, and of diagonals
    std::size_t real;          ///< number of tokens without padding
    std::size_t inner;         ///< diagonals in one ciphertext
    int feature_bits;          ///< bits of the fields in the place of the features of a block
    std::size_t baby;          ///< B: diagonals that are computed together
    long stride;               ///< slots between neighbouring tokens
    std::size_t top_stride;    ///< slots between neighbours along the features
    /// What a diagonal in the real and in the imaginary part adds to start + baby.
    std::vector<std::size_t> halves;

    /// First diagonals of the groups that are computed together.
    std::vector<std::size_t> starts() const;

    /// First diagonal of each ciphertext.
    std::vector<std::size_t> parts() const;

    std::size_t token(std::size_t slot) const { return tokens_of_slots_[slot]; }
    std::size_t diagonal(std::size_t slot) const { return diagonals_of_slots_[slot]; }

    /// Feature of a slot within its block: its index in the top bits.
    std::size_t feature(std::size_t slot) const { return slot / top_stride; }

    /// First diagonal of the ciphertext that holds a diagonal.
    std::size_t first_of(std::size_t start) const { return start - start % inner; }

    /// Which ciphertext holds a diagonal of the heads at an index.
    std::size_t number(Index index, std::size_t diagonal) const;

    /// Rotations in tokens that make turn(x, amount)[t] = x[t + amount], cyclic within the tokens,
    /// each with the slots that it serves.
    std::vector<std::pair<long, Mask>> turned(long amount) const;

    /// Slots of the diagonals start ... start + B - 1 in their ciphertext.
    Mask block(std::size_t start) const;

    /// Slots of the first copy, where diagonals are fewer than the places of the features.
    Mask first_copy() const;

    /// Slots whose query may see their key; padding rows act as row 0. `first`: diagonal of the
    /// slots where the index of s is 0; `mask`: [batch, tokens] or nullptr; `query`: token of the
    /// one query.
    Mask kept(std::size_t first, const Tensor* mask, bool causal, std::size_t offset = 0,
              std::size_t query = 0) const;

    /// log(keys / keys that the query may see) of the query of every slot; see `kept`.
    Vector log_hidden(const Tensor* mask, bool causal, std::size_t query) const;

private:
    // Masks ask for every slot, dozens of times for one product of matrices.
    std::vector<std::size_t> tokens_of_slots_;
    std::vector<std::size_t> diagonals_of_slots_;
};

/// Adds `fill` to the slots of masked keys, in every ciphertext of the scores, and to the others
/// log_keys * log(keys / keys that the query may see).
void fill_masked(const Context& context, const Scores& scores, Ciphertexts& parts, double fill,
                 double log_keys, const Tensor* mask, bool is_causal, std::size_t query = 0);

/// The public mask of keys, [batch, tokens]; nullptr without a name.
const Tensor* public_mask(const Context& context, const std::string& name, const Scores& scores);

}  // namespace atlasc
