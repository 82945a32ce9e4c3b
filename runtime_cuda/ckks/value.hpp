// What a ciphertext of the engine holds.
#pragma once

#include <cmath>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "atlasc/base/error.hpp"
#include "atlasc/engine.hpp"
#include "ckks/keys/sampling.hpp"
#include "ckks/ring/polynomials.hpp"

namespace atlasc::ckks {

/// A ciphertext, in one of three forms. The first is what the others are brought to, once, when an
/// operation needs it; the slots stay the same.
///   canonical  the primes of its level, at the level's scale
///   pending    those of the level above, at the scale of a product, and so are sums of products; of
///              three parts where ciphertexts were multiplied. It is `sum` until it is computed
///   dropped    more primes than its level needs, at the scale of the level that it comes from
struct Value {
    int level;
    std::shared_ptr<const Polys> polys;  ///< of `limbs` primes or more; null: see `sum`
    std::size_t limbs;
    double scale;
    std::optional<Seed> seed{};  ///< of part 1, where it is as `SecretKey::encrypt` made it
    std::shared_ptr<const Combination> sum{};
};

/// Whether scales are taken for equal: such a difference is far below the errors of CKKS.
inline bool close(double scale, double other) {
    return std::fabs(scale / other - 1.0) < 0x1p-40;
}

/// What a handle of a ciphertext points to. Whoever brings the value to another form puts that in its
/// place, which frees the old one; others go on with the form that they took.
class Held final : public CiphertextData {
public:
    explicit Held(Value value) : value_(std::move(value)) {}

    Value value() const {
        const std::lock_guard<std::mutex> lock(mutex_);
        return value_;
    }

    /// `value` has the same slots and level.
    void replace(Value value) const {
        const std::lock_guard<std::mutex> lock(mutex_);
        std::swap(value_, value);
    }

private:
    mutable std::mutex mutex_;
    mutable Value value_;
};

inline Ciphertext held(std::shared_ptr<const Polys> polys, int level, std::size_t limbs,
                       double scale, std::optional<Seed> seed = std::nullopt) {
    return std::make_shared<Held>(Value{level, std::move(polys), limbs, scale, seed});
}

/// Throws Error for a ciphertext of another engine.
inline const Held& held_by(const Ciphertext& x) {
    const auto* found = dynamic_cast<const Held*>(x.get());
    if (found == nullptr) {
        throw Error("a ciphertext of another engine was given to this one");
    }
    return *found;
}

inline Value of(const Ciphertext& x) { return held_by(x).value(); }

}  // namespace atlasc::ckks
