#include "ckks/ckks_engine.hpp"

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <utility>

#include "atlasc/base/error.hpp"
#include "atlasc/base/numbers.hpp"
#include "atlasc/record.hpp"
#include "ckks/keys/key_switch.hpp"
#include "ckks/value.hpp"

namespace atlasc::ckks {
namespace {

/// Part of the budget that encoded plaintexts may take; the diagonals of the bootstrap stay beyond it.
constexpr std::uint64_t cache_share = 18;

/// Plaintexts that are encoded and added at once.
constexpr std::size_t group = 16;

}  // namespace

void refuse(const std::string& primitive, const std::string& why, const std::string& remedy) {
    throw Error(primitive + " is impossible", why, remedy);
}

CkksEngine::CkksEngine(std::unique_ptr<Ground> ground, Role role)
    : ground_(std::move(ground)),
      ring_(ground_->ring),
      role_(std::move(role)),
      encoder_(std::make_shared<Encoder>(ring_)),
      cache_(std::make_shared<PlaintextCache>(*encoder_, ground_->memory->budget() / cache_share)),
      repeated_(std::make_shared<Repeated>(*ground_->memory)) {
    ground_->memory->on_pressure([this] {
        repeated_->clear();
        cache_->clear();
        encoder_->clear();
    });
}

CkksEngine::CkksEngine(const CkksEngine& whole, int level)
    : ground_(std::make_unique<Ground>(*whole.ground_, level)),
      ring_(ground_->ring),
      role_{whole.role_.identity, std::nullopt, whole.role_.keys},
      encoder_(whole.encoder_),
      cache_(whole.cache_),
      repeated_(whole.repeated_) {}

CkksEngine::~CkksEngine() {
    if (!ring_.chain().is_part()) {
        ground_->memory->on_pressure(nullptr);
    }
}

Ciphertext CkksEngine::encrypt(const Vector& vector, int level) {
    const bool can = role_.secret || role_.public_key;
    if (!can || level < 0 || level > ring_.chain().top() || vector.size() != slots()) {
        refuse("encrypt", "it needs a client's key, a level of the parameters, and all slots");
    }
    const std::size_t limbs = limbs_of(level);
    double most = 1.0;
    for (const double value : vector) {
        most = std::isfinite(value) ? std::max(most, std::fabs(value)) : INFINITY;
    }
    // No coefficient is larger than the largest slot times the scale. A decryption takes it for
    // centred modulo the primes that it reads; a thousandth of a bit is room for the error.
    const double bits = ring_.chain().log_q(std::min(limbs, Encoder::read_limbs)) - 1.001;
    const double possible = std::exp2(bits) / scale_of(level);
    if (!(most < possible)) {
        refuse("encrypt",
               "a slot holds " + short_text(most, 3) + "; at level " + std::to_string(level) +
                   " a decryption can read numbers below " + short_text(possible, 3),
               "scale the input down: it is far larger than any that a program is made for");
    }
    const Words plaintext = as_secret(encoder_->encode(vector, scale_of(level), limbs));
    if (!role_.secret) {
        return held(std::make_shared<Polys>(role_.public_key->encrypt(plaintext, limbs)), level,
                    limbs, scale_of(level));
    }
    Encryption made = role_.secret->encrypt(plaintext, limbs);
    return held(std::make_shared<Polys>(std::move(made.polys)), level, limbs, scale_of(level),
                made.seed);
}

ComplexVector CkksEngine::decrypt_complex(const Ciphertext& handle) {
    if (!role_.secret) {
        refuse("decrypt", "there is no secret key here");
    }
    const Value x = canonical(handle);
    const std::size_t limbs = std::min(x.limbs, Encoder::read_limbs);
    return encoder_->decode(role_.secret->decrypt(*x.polys, limbs), x.scale);
}

Vector CkksEngine::decrypt(const Ciphertext& x) {
    Vector result;
    for (const std::complex<double>& slot : decrypt_complex(x)) {
        result.push_back(slot.real());
    }
    return result;
}

int CkksEngine::level(const Ciphertext& x) const { return of(x).level; }

Ciphertext CkksEngine::combined(const Ciphertext& left, const Ciphertext& right,
                                   bool minus) const {
    const int level = std::min(of(left).level, of(right).level);
    const Ciphertext low_left = lowered(left, level);
    const Ciphertext low_right = lowered(right, level);
    Value a = of(low_left);
    Value b = of(low_right);
    double first = 1.0;
    double second = minus ? -1.0 : 1.0;
    const auto joins = [this](const Value& x) { return x.limbs > limbs_of(x.level); };
    if (a.scale != b.scale) {
        if (is_pending(a) && joins(b)) {
            second *= a.scale / b.scale;
            b.scale = a.scale;
        } else if (is_pending(b) && joins(a)) {
            first = b.scale / a.scale;
            a.scale = b.scale;
        } else {
            a = canonical(low_left);
            b = canonical(low_right);
        }
    }
    const std::size_t limbs = std::min(a.limbs, b.limbs);
    Combination total = times(a, first, limbs);
    if (a.sum != nullptr && a.sum == b.sum && !minus && total.doubles()) {
        total.twice(ring_);
        return summed(std::move(total), level, a.scale);
    }
    const Combination more = times(b, second, limbs);
    total.add(ring_, total.takes(more) ? more : term(b, second, limbs));
    return summed(std::move(total), level, a.scale);
}

Ciphertext CkksEngine::add(const Ciphertext& left, const Ciphertext& right) {
    return combined(left, right, false);
}

Ciphertext CkksEngine::sub(const Ciphertext& left, const Ciphertext& right) {
    return combined(left, right, true);
}

Ciphertext CkksEngine::negate(const Ciphertext& handle) {
    const Value x = of(handle);
    const std::size_t limbs = std::min(x.limbs, pending_limbs(x.level));
    return summed(times(x, -1.0, limbs), x.level, x.scale);
}

Ciphertext CkksEngine::times_i(const Ciphertext& handle) {
    const Value x = of(handle);
    const std::size_t limbs = std::min(x.limbs, pending_limbs(x.level));
    const PlainValues imaginary = of_own_primes(encoder_->imaginary(), limbs);
    auto polys = std::make_shared<Polys>(product(ring_, *words_of(x), imaginary, limbs));
    return held(std::move(polys), x.level, limbs, x.scale);
}

Ciphertext CkksEngine::add_plain(const Ciphertext& handle, const Plaintext& value) {
    const Value x = of(handle);
    const std::size_t limbs = std::min(x.limbs, pending_limbs(x.level));
    if (const double* number = std::get_if<double>(&value)) {
        require_size(ring_.chain(), std::fabs(*number), x.scale, limbs);
        Combination total = times(x, 1.0, limbs);
        total.add(ring_, {limbs, {}, 1, {}, residues(ring_, *number * x.scale, limbs)});
        return summed(std::move(total), x.level, x.scale);
    }
    std::vector<std::shared_ptr<const Plain>> kept;
    const PlainValues plain = encoded({&value}, {x.scale}, limbs, 0, false, kept)[0];
    auto polys = std::make_shared<Polys>(shifted(ring_, *words_of(x), plain, limbs));
    return held(std::move(polys), x.level, limbs, x.scale);
}

Value CkksEngine::factor(const Ciphertext& x, int level) const {
    const Ciphertext low = lowered(x, level);
    const Value known = of(low);
    return is_pending(known) ? canonical(low) : known;
}

Ciphertext CkksEngine::mul_plain(const Ciphertext& x, const Plaintext& value) {
    return dot_plain({x}, {value});
}

Ciphertext CkksEngine::dot_plain(const Ciphertexts& xs, const std::vector<Plaintext>& values) {
    if (xs.empty() || xs.size() != values.size()) {
        refuse("dot_plain", "it takes one pair of a ciphertext and a plaintext or more");
    }
    const int level = least_level({&xs}, "mul_plain");
    const std::size_t limbs = limbs_of(level);
    const double target = pending_scale(level - 1);
    Combination sum{limbs};
    std::vector<std::size_t> of_slots;
    for (std::size_t at = 0; at < xs.size(); ++at) {
        const double* number = std::get_if<double>(&values[at]);
        if (number == nullptr) {
            of_slots.push_back(at);
            continue;
        }
        // The plaintext has the scale that brings the product to that of the level below, wherever
        // the operand comes from.
        const Value x = factor(xs[at], level);
        const double scale = target / x.scale;
        require_size(ring_.chain(), std::fabs(*number), scale, limbs);
        sum.add(ring_, term(x, *number * scale, limbs));
    }
    if (of_slots.empty()) {
        return summed(std::move(sum), level - 1, target);
    }
    auto polys = std::make_shared<Polys>(ring_, 2, limbs);
    for (std::size_t first = 0; first < of_slots.size(); first += group) {
        std::vector<Value> operands;
        std::vector<const Plaintext*> slots;
        std::vector<double> scales;
        for (std::size_t at = first; at < std::min(of_slots.size(), first + group); ++at) {
            operands.push_back(factor(xs[of_slots[at]], level));
            slots.push_back(&values[of_slots[at]]);
            scales.push_back(target / operands.back().scale);
        }
        std::vector<std::shared_ptr<const Plain>> kept;
        const auto plains = encoded(slots, scales, limbs, 0, false, kept);
        std::vector<PlainTerm> terms;
        for (std::size_t at = 0; at < operands.size(); ++at) {
            const Polys& x = *operands[at].polys;
            terms.push_back({x.words.get(), x.limbs, plains[at]});
        }
        add_products(ring_, terms, limbs, 0, first != 0, polys->words.get());
    }
    if (sum.terms.empty()) {
        return held(std::move(polys), level - 1, limbs, target);
    }
    sum.terms.push_back({std::move(polys), residues(ring_, 1.0, limbs)});
    return summed(std::move(sum), level - 1, target);
}

PlainValues CkksEngine::of_own_primes(PlainValues values, std::size_t limbs) const {
    const Chain::Gap& gap = ring_.chain().gap;
    if (gap.key_limb(limbs - 1) + 1 != limbs) {
        values.from = gap.limb * ring_.degree();
        values.gap = gap.limbs * ring_.degree();
    }
    return values;
}

std::vector<PlainValues> CkksEngine::encoded(
    const std::vector<const Plaintext*>& values, const std::vector<double>& scales,
    std::size_t limbs, std::size_t special, bool again,
    std::vector<std::shared_ptr<const Plain>>& kept) const {
    const std::size_t all = ring_.chain().gap.key_limb(limbs - 1) + 1;
    kept = cache_->encoded(values, scales, all, special, again);
    std::vector<PlainValues> found;
    for (const auto& plain : kept) {
        keep_for_graph(plain);
        found.push_back(of_own_primes(plain->values(), limbs));
    }
    return found;
}

int CkksEngine::least_level(const std::vector<const Ciphertexts*>& operands,
                            const char* primitive) const {
    int level = ring_.chain().top();
    for (const Ciphertexts* some : operands) {
        for (const Ciphertext& x : *some) {
            level = std::min(level, of(x).level);
        }
    }
    if (level < 1) {
        refuse(primitive, "an operand is at level 0: no multiplication is left",
               "place a bootstrap before it, or choose parameters with more levels");
    }
    return level;
}

Ciphertext CkksEngine::mul(const Ciphertext& left, const Ciphertext& right) {
    return dot({left}, {right});
}

Ciphertext CkksEngine::square(const Ciphertext& x) { return dot({x}, {x}); }

Ciphertext CkksEngine::dot(const Ciphertexts& lefts, const Ciphertexts& rights) {
    if (lefts.empty() || lefts.size() != rights.size()) {
        refuse("dot", "it takes one pair of ciphertexts or more");
    }
    const int level = least_level({&lefts, &rights}, "a product");
    const std::size_t limbs = limbs_of(level);
    const double target = pending_scale(level - 1);
    if (!close(scale_of(level) * scale_of(level), target)) {
        refuse("a product", "level " + std::to_string(level) +
                                " belongs to the linear transforms of the bootstrap");
    }
    const auto& key = role_.keys->relinearisation;
    if (!reaches(ring_, key ? &*key : nullptr, limbs)) {
        refuse("a product", "there is no key to relinearise at level " + std::to_string(level),
               "make keys with this program's client");
    }
    Combination sum{limbs};
    const std::size_t most = std::max<std::size_t>(together() / 4, 1);
    for (std::size_t first = 0; first < lefts.size(); first += most) {
        const std::size_t end = std::min(first + most, lefts.size());
        Ciphertexts operands;
        for (std::size_t at = first; at < end; ++at) {
            operands.push_back(lowered(lefts[at], level));
            operands.push_back(lefts[at] == rights[at] ? operands.back()
                                                       : lowered(rights[at], level));
        }
        settled(operands);
        if (sum.products.size() + end - first > Combine::most_products) {
            // Not for later: it would keep all operands.
            auto polys = std::make_shared<Polys>(computed(ring_, sum));
            sum = {limbs, {}, 1, {{std::move(polys), residues(ring_, 1.0, limbs)}}};
        }
        for (std::size_t at = 0; at < operands.size(); at += 2) {
            sum.products.push_back(
                {canonical(operands[at]).polys, canonical(operands[at + 1]).polys});
        }
    }
    return summed(std::move(sum), level - 1, target);
}

Ciphertext CkksEngine::drop_to(const Ciphertext& x, int level) {
    if (level < 0 || level > of(x).level) {
        refuse("drop_to", "a ciphertext at level " + std::to_string(of(x).level) +
                              " has no level " + std::to_string(level));
    }
    return lowered(x, level);
}

}  // namespace atlasc::ckks
