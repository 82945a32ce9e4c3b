#include "ckks/keys/sampling.hpp"

#include <random>

#include "kernel.hpp"

namespace atlasc::ckks {
namespace {

// The last word of a nonce, so that no two uses of a seed share a block.
constexpr std::uint32_t error_domain = 1U << 31;
constexpr std::uint32_t secret_domain = 1U << 30;

/// 128 random bits modulo a prime of 60 bits are uniform up to 2^-68; 4 residues a block.
struct Uniform {
    Stream stream;
    int log_degree;
    const Prime* primes;
    std::size_t first;
    Word* out;

    ATLASC_DEVICE void operator()(std::size_t at) const {
        const std::size_t start = 4 * at;
        const auto prime = static_cast<std::uint32_t>(first + (start >> log_degree));
        const std::uint32_t nonce[3] = {stream.number, prime, 0};
        std::uint32_t block[16];
        const std::size_t mask = (std::size_t{1} << log_degree) - 1;
        chacha20(stream.seed, static_cast<std::uint32_t>(start & mask), nonce, block);
        for (int number = 0; number < 4; ++number) {
            Wide bits = 0;
            for (int word = 0; word < 4; ++word) {
                bits = (bits << 32) | block[4 * number + word];
            }
            out[start + number] = reduce(bits, primes[prime]);
        }
    }
};

ATLASC_DEVICE inline int ones(std::uint32_t bits) {
    int count = 0;
    for (; bits != 0; bits &= bits - 1) {
        ++count;
    }
    return count;
}

/// 21 bits against 21 bits; 8 coefficients a block.
struct ErrorResidues {
    Stream stream;
    int log_degree;
    const Prime* primes;
    std::size_t first;
    std::size_t count;
    Word* out;

    ATLASC_DEVICE void operator()(std::size_t at) const {
        constexpr std::uint32_t bits = (1U << 21) - 1;
        const std::uint32_t nonce[3] = {stream.number, 0, error_domain};
        std::uint32_t block[16];
        chacha20(stream.seed, static_cast<std::uint32_t>(at), nonce, block);
        for (int number = 0; number < 8; ++number) {
            const int error = ones(block[2 * number] & bits) - ones(block[2 * number + 1] & bits);
            for (std::size_t limb = 0; limb < count; ++limb) {
                const Prime& q = primes[first + limb];
                out[(limb << log_degree) + 8 * at + number] =
                    error < 0 ? q.value - static_cast<Word>(-error) : static_cast<Word>(error);
            }
        }
    }
};

struct SecretResidues {
    int log_degree;
    const Prime* primes;
    const std::int8_t* secret;
    Word* out;

    ATLASC_DEVICE void operator()(std::size_t at) const {
        const std::int8_t value = secret[at & ((std::size_t{1} << log_degree) - 1)];
        const Prime& q = primes[at >> log_degree];
        out[at] = value < 0 ? q.value - 1 : static_cast<Word>(value);
    }
};

/// Words of 64 bits on the host.
class Generator {
public:
    std::uint64_t operator()() {
        if (left_ == 0) {
            const std::uint32_t nonce[3] = {0, 0, secret_domain};
            chacha20(seed_, counter_++, nonce, block_);
            left_ = 8;
        }
        --left_;
        return static_cast<std::uint64_t>(block_[2 * left_]) << 32 | block_[2 * left_ + 1];
    }

private:
    Seed seed_ = fresh_seed();
    std::uint32_t counter_ = 0;
    std::uint32_t block_[16] = {};
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
    launch(ring.degree() / 8,
           ErrorResidues{stream, ring.log_degree(), ring.primes(), first, count, out},
           "error polynomial");
}

std::vector<std::int8_t> uniform_secret(std::size_t degree) {
    Generator random;
    std::vector<std::int8_t> secret;
    while (secret.size() < degree) {
        secret.push_back(static_cast<std::int8_t>(static_cast<int>(random() % 3) - 1));
    }
    return secret;
}

std::vector<std::int8_t> sparse_secret(std::size_t degree, int weight) {
    Generator random;
    std::vector<std::int8_t> secret(degree, 0);
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

Words transformed_secret(const Ring& ring, const std::vector<std::int8_t>& secret) {
    const Array<std::int8_t> coefficients = uploaded(ring.memory(), secret);
    Words values = ring.polynomial(ring.size_qp());
    launch(values.size(),
           SecretResidues{ring.log_degree(), ring.primes(), coefficients.get(), values.get()},
           "secret");
    ring.forward(values.get(), ring.size_qp());
    return values;
}

}  // namespace atlasc::ckks
