#include "ckks/keys/secret_key.hpp"

#include <utility>

#include "kernel.hpp"

namespace atlasc::ckks {
namespace {

/// c0 = e + m - a s; `c0` holds e.
struct Encrypt {
    int log_degree;
    const Prime* primes;
    const Word* secret;
    const Word* plaintext;
    const Word* a;
    Word* c0;

    ATLASC_DEVICE void operator()(std::size_t at) const {
        const Prime& q = primes[at >> log_degree];
        const Word message = add(c0[at], plaintext[at], q);
        c0[at] = subtract(message, multiply(a[at], secret[at], q), q);
    }
};

struct Decrypt {
    int log_degree;
    const Prime* primes;
    const Word* secret;
    const Word* c0;
    const Word* c1;
    Word* out;

    ATLASC_DEVICE void operator()(std::size_t at) const {
        const Prime& q = primes[at >> log_degree];
        out[at] = add(c0[at], multiply(c1[at], secret[at], q), q);
    }
};

}  // namespace

void sample_ciphertext_part(const Ring& ring, const Seed& seed, const Polys& x) {
    sample_uniform(ring, {seed}, x.part(1), 0, x.limbs);
}

SecretKey::SecretKey(const Ring& ring, const Coefficients& secret)
    : ring_(ring), secret_(transformed_secret(ring, secret)) {}

Encryption SecretKey::encrypt(const Words& plaintext, std::size_t limbs) const {
    Polys out(ring_, 2, limbs);
    const Secret<Stream> errors{{fresh_seed()}};
    const Seed seed = fresh_seed();
    sample_ciphertext_part(ring_, seed, out);
    sample_error(ring_, errors.value, out.part(0), 0, limbs);
    ring_.forward(out.part(0), limbs);
    launch(limbs * ring_.degree(),
           Encrypt{ring_.log_degree(), ring_.primes(), secret_.get(), plaintext.get(),
                   out.part(1), out.part(0)},
           "encryption");
    return {std::move(out), seed};
}

Words SecretKey::decrypt(const Polys& x, std::size_t limbs) const {
    Words out = as_secret(ring_.polynomial(limbs));
    launch(out.size(),
           Decrypt{ring_.log_degree(), ring_.primes(), secret_.get(), x.part(0), x.part(1),
                   out.get()},
           "decryption");
    return out;
}

}  // namespace atlasc::ckks
