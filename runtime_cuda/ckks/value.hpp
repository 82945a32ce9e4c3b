// What a ciphertext of the engine holds.
#pragma once

#include <memory>
#include <utility>

#include "atlasc/engine.hpp"
#include "atlasc/error.hpp"
#include "ckks/polynomials.hpp"

namespace atlasc::ckks {

/// A ciphertext, in one of three forms. The first is what the others are brought to, once, when an
/// operation needs it; the slots stay the same.
///   canonical  the primes of its level, at the level's scale
///   pending    those of the level above, at the scale of a product, and so are sums of products; of
///              three parts where ciphertexts were multiplied
///   dropped    more primes than its level needs, at the scale of the level that it comes from
struct Value final : CiphertextData {
    Value(std::shared_ptr<const Polys> polys, int level, std::size_t limbs, double scale)
        : level(level), polys(std::move(polys)), limbs(limbs), scale(scale) {}

    int level;
    mutable std::shared_ptr<const Polys> polys;  ///< of `limbs` primes or more
    mutable std::size_t limbs;
    mutable double scale;
};

/// Throws Error for a ciphertext of another engine.
inline const Value& of(const Ciphertext& x) {
    const auto* value = dynamic_cast<const Value*>(x.get());
    if (value == nullptr) {
        throw Error("a ciphertext of another engine was given to this one");
    }
    return *value;
}

}  // namespace atlasc::ckks
