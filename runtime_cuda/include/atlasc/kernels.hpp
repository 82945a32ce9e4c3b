// The macro ops of a program: how each becomes an engine's primitives, once for all engines.
//
// Operands come by value: a caller that moves its last use in frees the ciphertexts with the op.
#pragma once

#include <cstddef>
#include <string>

#include "atlasc/context.hpp"

namespace atlasc {

/// What an op may be told beside its operands; any of them together.
enum Flags : unsigned {
    plain = 0,
    paired = 1,         ///< two diagonals share a complex plaintext
    copy_padding = 2,   ///< padding blocks copy block 0 (else they are zero)
    first_row = 4,      ///< zero in all tokens but the first
    zero_padding = 8,   ///< zero in padding rows (else they copy row 0)
    causal = 16,        ///< a query sees no later key
};

constexpr Flags operator|(Flags one, Flags other) {
    return static_cast<Flags>(static_cast<unsigned>(one) | static_cast<unsigned>(other));
}

/// Names of a linear layer's arrays; empty where it has none.
struct Linear {
    std::string weight;   ///< [out, in]
    std::string bias{};   ///< [out]
    std::string cos{};    ///< rotary table [tokens, width of a head]
    std::string sin{};
};

// Slot by slot. Of two operands one may be replicated where the other has an axis.
Packed add(Context& context, Packed a, Packed b);
Packed sub(Context& context, Packed a, Packed b);
Packed mul(Context& context, Packed a, Packed b);
Packed square(Context& context, Packed x);

/// x * 2^times by additions.
Packed doubled(Context& context, Packed x, int times);
Packed add_plain(Context& context, Packed x, const Constant& value, Flags flags = plain);
Packed mul_plain(Context& context, Packed x, const Constant& value, Flags flags = plain);

/// The product in a layout in which a replicated operand grows an axis.
Packed mul_plain(Context& context, Packed x, const Constant& value, const Layout& layout,
                 Flags flags = plain);

/// A Chebyshev sum on [-1, 1]: coefficients [degree + 1], or [features, degree + 1].
Packed chebyshev(Context& context, Packed x, const Constant& coefficients);

/// Weight times x plus bias over the features, by diagonals with baby and giant steps.
Packed linear_transform(Context& context, Packed x, const Linear& arrays, std::size_t baby_steps,
                        const Layout& layout, Flags flags = plain);

/// Sum over axes, by rotations and over ciphertexts.
Packed rotate_sum(Context& context, Packed x, const std::string& axes);

/// Keep one index along an axis; other slots hold anything.
Packed select(Context& context, Packed x, char axis, std::size_t index);

/// Scores of queries and keys in diagonal packing, `baby_steps` diagonals at a time. Masked keys
/// become `fill`; the others get log_keys * log(keys / keys that their query may see). `mask` is
/// the name of a public input, empty where there is none.
Packed ct_matmul_qk(Context& context, Packed q, Packed k, std::size_t baby_steps, double fill,
                    double log_keys, const Layout& layout, const std::string& mask = "", Flags flags = plain);

/// Zero for masked keys and padding keys, which all hold `value`; `query` is the token of the one
/// query, where there is one alone.
Packed mask_zero(Context& context, Packed weights, double value, const std::string& mask = "",
                 Flags flags = plain, std::size_t query = 0);

/// The context of diagonally packed weights p and values v.
Packed ct_matmul_pv(Context& context, Packed p, Packed v, std::size_t baby_steps,
                    const Layout& layout);

/// One token in the places of all, which are zero before; blocks may go to some of them.
Packed replicate(Context& context, Packed x, const Layout& layout);

/// Scores of one query, replicated over the tokens of the keys; see ct_matmul_qk.
Packed row_scores(Context& context, Packed q, Packed k, double fill, double log_keys,
                  const Layout& layout, const std::string& mask = "", Flags flags = plain, std::size_t query = 0);

/// The context of the weights of one query.
Packed row_context(Context& context, Packed p, Packed v);

/// All ciphertexts of a replicated value in one, and back.
Packed gather(Context& context, Packed x);
Packed spread(Context& context, Packed x, const Layout& layout);

/// To a lower level.
Packed drop(Context& context, Packed x, int level);

/// Refreshed, then dropped to a level.
Packed bootstrap(Context& context, Packed x, int level);

}  // namespace atlasc
