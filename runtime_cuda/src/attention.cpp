// Products of two ciphertexts in attention, with scores packed by diagonals.
//
// With turn(x, r)[t] = x[t + r], cyclic within the n tokens, diagonal s of the scores is
// sum_d q[d, t] k[d, t + s], and the context is sum_s p[s, t] v[d, t + s]. Three things make them
// cheap: skewed copies, whose products hold B diagonals at once and are relinearised together; two
// halves of the diagonals in one ciphertext, s in the real and s + n/2 in the imaginary part; and
// turns that only a group of B diagonals needs.
#include <map>
#include <utility>

#include "atlasc/kernels.hpp"
#include "scores.hpp"

namespace atlasc {
namespace {

/// B copies of x, halved: in the real part of copy r, token t of feature d is token t + j of x with
/// j = (d + direction * r) mod B, and in the imaginary part `unit` times token t + j + n/2.
Ciphertexts skewed(const Context& context, const Scores& scores, const Ciphertext& x, int direction,
                   std::complex<double> unit) {
    struct Move {
        std::size_t shift;
        std::complex<double> factor;
        long rotation;
        Mask inside;
    };
    const auto parts = static_cast<double>(scores.halves.size());
    std::vector<Move> moves;
    std::vector<long> amounts;
    for (std::size_t part = 0; part < scores.halves.size(); ++part) {
        for (std::size_t j = 0; j < scores.baby; ++j) {
            for (auto& [rotation, inside] :
                 scores.turned(static_cast<long>(j + scores.halves[part]))) {
                const std::complex<double> factor = part == 0 ? 1.0 : unit;
                moves.push_back({j, factor / parts, rotation, inside});
                amounts.push_back(rotation * scores.stride);
            }
        }
    }
    const Ciphertexts rotated = context.rotate_many(x, amounts);
    const auto n = static_cast<long>(scores.tokens);
    Ciphertexts copies;
    for (std::size_t r = 0; r < scores.baby; ++r) {
        const std::size_t skew = direction > 0 ? r : scores.baby - r;
        Ciphertexts terms;
        for (std::size_t at = 0; at < moves.size(); ++at) {
            const Move& move = moves[at];
            ComplexVector vector(scores.layout.slots());
            for (std::size_t slot = 0; slot < vector.size(); ++slot) {
                const long key = (static_cast<long>(scores.token(slot)) + move.rotation + n) % n;
                if (move.inside[slot] && (scores.feature(slot) + skew) % scores.baby == move.shift &&
                    key < static_cast<long>(scores.layout.extent('t'))) {
                    vector[slot] = move.factor;
                }
            }
            terms.push_back(context.engine.mul_plain(rotated[at], std::move(vector)));
        }
        copies.push_back(context.total(terms));
    }
    return copies;
}

/// turn(x, amount) in the chosen slots, 0 elsewhere; in all slots and by 0 it costs nothing.
Ciphertext turn(const Context& context, const Scores& scores, const Ciphertext& x, long amount,
                const Mask* chosen = nullptr) {
    if (amount == 0 && chosen == nullptr) {
        return x;
    }
    const auto turns = scores.turned(amount);
    std::vector<long> amounts;
    for (const auto& one : turns) {
        amounts.push_back(one.first * scores.stride);
    }
    const Ciphertexts rotated = context.rotate_many(x, amounts);
    Ciphertexts terms;
    for (std::size_t at = 0; at < turns.size(); ++at) {
        Vector kept(scores.layout.slots());
        for (std::size_t slot = 0; slot < kept.size(); ++slot) {
            kept[slot] = turns[at].second[slot] && (chosen == nullptr || (*chosen)[slot]);
        }
        terms.push_back(context.engine.mul_plain(rotated[at], std::move(kept)));
    }
    return context.total(terms);
}

/// x rotated by 0 ... B - 1 features.
Ciphertexts by_feature(const Context& context, const Scores& scores, const Ciphertext& x) {
    std::vector<long> amounts;
    for (std::size_t r = 0; r < scores.baby; ++r) {
        amounts.push_back(static_cast<long>(r * scores.top_stride));
    }
    return context.rotate_many(x, amounts);
}

/// The sum over the features that are equal modulo B, in all of them.
Ciphertext sum_over_groups(const Context& context, const Scores& scores, const Ciphertext& x) {
    int bits = scores.feature_bits;
    for (std::size_t baby = scores.baby; baby > 1; baby /= 2) {
        --bits;
    }
    return context.double_and_add(x, scores.top_stride * scores.baby, bits);
}

/// The diagonals from `start` on, turned back; zero in other places and for masked keys.
///
/// Where the two halves have different masks a and b: x (a + b)/2 + conj(x) (a - b)/2.
Ciphertext placed(const Context& context, const Scores& scores, const Ciphertext& total,
                  std::size_t start, const Tensor* mask, bool is_causal) {
    const bool alike = mask == nullptr && !is_causal && scores.layout.extent('t') == scores.tokens;
    Ciphertexts sources = {total};
    if (!alike) {
        sources.push_back(context.engine.conjugate(total));
    }
    const std::size_t first = scores.first_of(start);
    const Mask block = scores.block(start);
    const Mask one = scores.kept(first, mask, is_causal, scores.halves.front());
    const Mask other = scores.kept(first, mask, is_causal, scores.halves.back());
    Ciphertexts terms;
    for (const auto& [rotation, inside] : scores.turned(static_cast<long>(start))) {
        Ciphertexts turned;
        for (std::size_t at = 0; at < sources.size(); ++at) {
            Vector factor(scores.layout.slots(), 0.0);
            for (std::size_t slot = 0; slot < factor.size(); ++slot) {
                if (inside[slot] && block[slot]) {
                    const int both = at == 0 ? one[slot] + other[slot] : one[slot] - other[slot];
                    factor[slot] = both / 2.0;
                }
            }
            turned.push_back(context.engine.mul_plain(
                sources[at], rolled(factor, rotation * scores.stride)));
        }
        terms.push_back(context.rotate(context.total(turned), rotation * scores.stride));
    }
    return context.total(terms);
}

/// By first diagonal, the ciphertexts of what lies in the two parts of one.
std::vector<std::pair<std::size_t, Ciphertext>> apart(const Context& context, const Scores& scores,
                                                      std::size_t first, const Ciphertext& both) {
    if (scores.halves.size() == 1) {
        return {{first, both}};
    }
    Engine& engine = context.engine;
    const Ciphertext other = engine.conjugate(both);
    const Ciphertext low = engine.add(both, other);
    const Ciphertext high = engine.times_i(engine.sub(other, both));
    if (scores.inner == scores.tokens) {  // both halves share a ciphertext
        const auto amount = static_cast<long>(scores.halves[1] * scores.top_stride);
        return {{first, engine.add(low, context.rotate(high, -amount))}};
    }
    return {{first, low}, {first + scores.halves[1], high}};
}

/// The inverse of `apart`: weights of two halves of the diagonals in one ciphertext.
Ciphertext together(const Context& context, const Scores& scores, const Ciphertexts& weights,
                    const Index& index, std::size_t first) {
    const Ciphertext& low = weights.at(scores.number(index, first));
    if (scores.halves.size() == 1) {
        return low;
    }
    const std::size_t half = scores.halves[1];
    const Ciphertext high =
        scores.inner == scores.tokens
            ? context.rotate(low, static_cast<long>(half * scores.top_stride))
            : weights.at(scores.number(index, first + half));
    return context.engine.add(low, context.engine.times_i(high));
}

}  // namespace

Packed ct_matmul_qk(Context& context, Packed q, Packed k, std::size_t baby_steps, double fill,
                    double log_keys, const Layout& layout, const std::string& mask, Flags flags) {
    context.begin("ct_matmul_qk");
    const Scores scores(layout, baby_steps);
    const Tensor* keys = public_mask(context, mask, scores);
    const bool is_causal = (flags & causal) != 0;
    Packed result{layout, Ciphertexts(layout.ciphertexts())};
    const std::vector<Index> indices = q.layout.ciphertext_index();
    for (std::size_t column = 0; column < indices.size(); ++column) {
        Ciphertexts copies = skewed(context, scores, k.parts.at(column), -1, {0.0, 1.0});
        for (std::size_t r = 0; r < copies.size(); ++r) {
            copies[r] = context.rotate(copies[r], static_cast<long>(r * scores.top_stride));
        }
        std::map<std::size_t, Ciphertext> packed;  // by first diagonal
        for (const std::size_t start : scores.starts()) {
            const Ciphertext query =
                turn(context, scores, q.parts.at(column), -static_cast<long>(start));
            const Ciphertext product =
                context.engine.dot(by_feature(context, scores, query), copies);
            const Ciphertext total = sum_over_groups(context, scores, product);
            const Ciphertext part = placed(context, scores, total, start, keys, is_causal);
            Ciphertext& sum = packed[scores.first_of(start)];
            sum = sum == nullptr ? part : context.engine.add(sum, part);
        }
        for (const auto& [first, both] : packed) {
            for (const auto& [diagonal, part] : apart(context, scores, first, both)) {
                result.parts.at(scores.number(indices[column], diagonal)) = part;
            }
        }
    }
    fill_masked(context, scores, result.parts, fill, log_keys, keys, is_causal);
    return result;
}

Packed mask_zero(Context& context, Packed weights, double value, const std::string& mask,
                 Flags flags, std::size_t query) {
    context.begin("mask_zero");
    const Scores scores(weights.layout);
    const Tensor* keys = public_mask(context, mask, scores);
    fill_masked(context, scores, weights.parts, -value, 0.0, keys, (flags & causal) != 0, query);
    return weights;
}

Packed ct_matmul_pv(Context& context, Packed p, Packed v, std::size_t baby_steps,
                    const Layout& layout) {
    context.begin("ct_matmul_pv");
    const Scores scores(p.layout, baby_steps);
    Packed result{layout, {}};
    const Mask first_copy = scores.first_copy();
    const std::vector<Index> indices = v.layout.ciphertext_index();
    for (std::size_t column = 0; column < indices.size(); ++column) {
        const Ciphertexts copies = skewed(context, scores, v.parts.at(column), 1, {0.0, -1.0});
        std::map<std::size_t, Ciphertext> both;  // by first diagonal
        Ciphertexts terms;
        for (const std::size_t start : scores.starts()) {
            const std::size_t first = scores.first_of(start);
            if (both.count(first) == 0) {
                both[first] = together(context, scores, p.parts, indices[column], first);
            }
            Mask chosen = scores.block(start);
            for (std::size_t slot = 0; slot < chosen.size(); ++slot) {
                chosen[slot] = chosen[slot] && first_copy[slot];
            }
            const long amount = static_cast<long>(start);
            const Ciphertext group = sum_over_groups(
                context, scores, turn(context, scores, both.at(first), -amount, &chosen));
            const Ciphertext product =
                context.engine.dot(by_feature(context, scores, group), copies);
            terms.push_back(turn(context, scores, product, amount));
        }
        const Ciphertext total = context.total(terms);
        result.parts.push_back(scores.halves.size() == 1
                                   ? total
                                   : context.engine.add(total, context.engine.conjugate(total)));
    }
    return result;
}

}  // namespace atlasc
