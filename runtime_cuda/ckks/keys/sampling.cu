#include "ckks/keys/sampling.hpp"

#include "kernel.hpp"

namespace atlasc::ckks {
namespace {

struct SecretResidues {
    int log_degree;
    const Prime* primes;
    const std::int8_t* secret;
    Word* out;

    ATLASC_DEVICE void operator()(std::size_t at) const {
        const std::int8_t value = secret[at & ((std::size_t{1} << log_degree) - 1)];
        out[at] = residue(value, primes[at >> log_degree]);
    }
};

/// Words of 64 bits on the host.
class Generator {
public:
    std::uint64_t operator()() {
        if (left_ == 0) {
            const std::uint32_t nonce[3] = {0, 0, secret_domain};
            chacha20(seed_.value, counter_++, nonce, block_.value.words);
            left_ = 8;
        }
        --left_;
        const std::uint32_t* words = block_.value.words + 2 * left_;
        return static_cast<std::uint64_t>(words[0]) << 32 | words[1];
    }

private:
    struct Block {
        std::uint32_t words[16];
    };

    Secret<Seed> seed_{fresh_seed()};
    Secret<Block> block_{};
    std::uint32_t counter_ = 0;
    int left_ = 0;
};

}  // namespace

Seed fresh_seed() {
    Seed seed{};
    random_bytes(seed.words, sizeof seed.words);
    return seed;
}

void sample_uniform(const Ring& ring, const Stream& stream, Word* out, std::size_t first,
                    std::size_t count) {
    launch(count * ring.degree() / 4,
           Uniform{stream, ring.log_degree(), ring.primes(), first, out}, "uniform polynomial");
}

void sample_error(const Ring& ring, const Stream& stream, Word* out, std::size_t first,
                  std::size_t count) {
    const Secret<ErrorResidues> kernel{
        {stream, ring.log_degree(), ring.primes(), first, count, out}};
    launch(ring.degree() / 8, kernel.value, "error polynomial");
}

Coefficients uniform_secret(std::size_t degree) {
    Generator random;
    Coefficients secret(degree);
    for (std::int8_t& coefficient : secret) {  // 2^64 modulo 3: uniform up to 2^-64
        coefficient = static_cast<std::int8_t>(static_cast<int>(random() % 3) - 1);
    }
    return secret;
}

Coefficients sparse_secret(std::size_t degree, int weight) {
    Generator random;
    Coefficients secret(degree, 0);
    for (int found = 0; found < weight;) {
        const std::uint64_t bits = random();
        std::int8_t& coefficient = secret[(bits >> 1) % degree];  // degree is a power of two
        if (coefficient == 0) {
            coefficient = (bits & 1) != 0 ? 1 : -1;
            ++found;
        }
    }
    return secret;
}

Words transformed_secret(const Ring& ring, const Coefficients& secret) {
    const Array<std::int8_t> coefficients = as_secret(uploaded(ring.memory(), secret));
    Words values = as_secret(ring.polynomial(ring.size_qp()));
    launch(values.size(),
           SecretResidues{ring.log_degree(), ring.primes(), coefficients.get(), values.get()},
           "secret");
    ring.forward(values.get(), ring.size_qp());
    return values;
}

}  // namespace atlasc::ckks
