#include "ckks/keys/public_key.hpp"

#include "kernel.hpp"

namespace atlasc::ckks {
namespace {

/// out = v k + e, and m where there is one; `out` [limb][N] holds e.
struct EncryptPart {
    int log_degree;
    const Prime* primes;
    const Word* mask;       ///< v
    const Word* key;        ///< k, a part of the public key
    const Word* plaintext;  ///< m; may be null
    Word* out;

    ATLASC_DEVICE void operator()(std::size_t at) const {
        const Prime& q = primes[at >> log_degree];
        Word value = add(out[at], multiply(mask[at], key[at], q), q);
        if (plaintext != nullptr) {
            value = add(value, plaintext[at], q);
        }
        out[at] = value;
    }
};

}  // namespace

Polys PublicKey::encrypt(const Words& plaintext, std::size_t limbs) const {
    Polys out(ring_, 2, limbs);
    const Words mask = transformed_secret(ring_, uniform_secret(ring_.degree()));
    for (std::size_t part = 0; part < 2; ++part) {
        const Secret<Stream> errors{{fresh_seed()}};
        sample_error(ring_, errors.value, out.part(part), 0, limbs);
        ring_.forward(out.part(part), limbs);
        launch(limbs * ring_.degree(),
               EncryptPart{ring_.log_degree(), ring_.primes(), mask.get(), zero_.part(part),
                           part == 0 ? plaintext.get() : nullptr, out.part(part)},
               "encryption");
    }
    return out;
}

}  // namespace atlasc::ckks
