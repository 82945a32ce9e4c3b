#include "ckks/keys/key_maker.hpp"

#include <algorithm>
#include <utility>

#include "kernel.hpp"

namespace atlasc::ckks {
namespace {

/// b = e - a s, and P t on the primes of a digit; `out` holds e.
struct Mask {
    int log_degree;
    std::size_t limbs;
    std::size_t size_q;
    const Prime* primes;
    const Word* a;
    const Word* secret;   ///< [all primes][N]
    const Word* content;  ///< t, [primes of Q][N]
    const Word* factor;   ///< P modulo the primes of Q
    std::size_t begin;    ///< of the digit's primes
    std::size_t end;
    Word* out;

    ATLASC_DEVICE void operator()(std::size_t at) const {
        const std::size_t limb = at >> log_degree;
        const std::size_t prime = limb < limbs ? limb : size_q + limb - limbs;
        const std::size_t in_all = at - (limb << log_degree) + (prime << log_degree);
        const Prime& q = primes[prime];
        Word b = subtract(out[at], multiply(a[at], secret[in_all], q), q);
        if (prime >= begin && prime < end) {
            b = add(b, multiply(factor[prime], content[in_all], q), q);
        }
        out[at] = b;
    }
};

struct Square {
    int log_degree;
    const Prime* primes;
    const Word* in;
    Word* out;

    ATLASC_DEVICE void operator()(std::size_t at) const {
        out[at] = multiply(in[at], in[at], primes[at >> log_degree]);
    }
};

/// Every so many coefficients modulo q_0, from one on, and zeros.
struct Part {
    int log_degree;
    const Prime* primes;
    const Word* coefficients;
    std::size_t number;
    Word* out;

    ATLASC_DEVICE void operator()(std::size_t at) const {
        const std::size_t place = at & ((std::size_t{1} << log_degree) - 1);
        out[at] = (place & (raised_copies - 1)) != 0
                      ? 0
                      : lift(coefficients[place + number], primes[0], primes[at >> log_degree]);
    }
};

struct Permute {
    int log_degree;
    std::uint32_t galois;
    const Word* in;
    Word* out;

    ATLASC_DEVICE void operator()(std::size_t at) const {
        const std::size_t start = (at >> log_degree) << log_degree;
        const auto place = static_cast<std::uint32_t>(at - start);
        out[at] = in[start + permuted(place, galois, log_degree)];
    }
};

/// A secret at X^galois.
Words turned(const Ring& ring, const Words& secret, std::uint32_t galois) {
    Words result = as_secret(Words(ring.memory(), secret.size()));
    launch(result.size(), Permute{ring.log_degree(), galois, secret.get(), result.get()}, "secret");
    return result;
}

Stream stream_of(const Seed& seed, const KeyEntry& entry, std::size_t digit) {
    return {seed, entry.number, static_cast<std::uint32_t>(digit)};
}

}  // namespace

void sample_uniform_part(const Ring& ring, const Seed& seed, const KeyEntry& entry,
                         std::size_t digit, Word* out) {
    const Stream stream = stream_of(seed, entry, digit);
    sample_uniform(ring, stream, out, 0, entry.limbs);
    sample_uniform(ring, stream, out + entry.limbs * ring.degree(), ring.size_q(), entry.special);
}

KeyMaker::KeyMaker(const Ring& ring, const Coefficients& secret, const Seed& seed)
    : ring_(ring),
      seed_(seed),
      error_seed_{fresh_seed()},
      secret_(transformed_secret(ring, secret)),
      sparse_(transformed_secret(ring, sparse_secret(ring.degree(), sparse_weight))) {}

Words KeyMaker::content(const KeyEntry& entry) const {
    using Kind = KeyEntry::Kind;
    if (entry.kind != Kind::relinearisation) {
        return turned(ring_, entry.kind == Kind::to_dense ? sparse_ : secret_, 1);
    }
    Words result = as_secret(ring_.polynomial(ring_.size_q()));
    launch(result.size(),
           Square{ring_.log_degree(), ring_.primes(), secret_.get(), result.get()}, "secret");
    return result;
}

Words KeyMaker::part_of_sparse(std::size_t number) const {
    const Words coefficients = as_secret(ring_.polynomial(1));
    ring_.backward(coefficients.get(), sparse_.get(), 1);
    Words result = as_secret(ring_.polynomial(ring_.size_q()));
    launch(result.size(),
           Part{ring_.log_degree(), ring_.primes(), coefficients.get(), number, result.get()},
           "secret");
    ring_.forward(result.get(), ring_.size_q());
    return result;
}

Words KeyMaker::target(const KeyEntry& entry) const {
    using Kind = KeyEntry::Kind;
    std::uint32_t galois = 1;
    if (entry.kind == Kind::rotation || entry.kind == Kind::conjugation) {
        galois = inverse_galois(ring_, entry.kind == Kind::rotation
                                           ? galois_of(ring_, entry.amount)
                                           : galois_of_conjugation(ring_));
    }
    return turned(ring_, entry.kind == Kind::to_sparse ? sparse_ : secret_, galois);
}

SwitchKey KeyMaker::make(const KeyEntry& entry) const {
    const bool to_sparse = entry.kind == KeyEntry::Kind::to_sparse;
    const bool copies = entry.kind == KeyEntry::Kind::copies_to_dense;
    Words content = copies ? Words() : this->content(entry);
    const Words secret = this->target(entry);
    std::vector<Word> product = ring_.special_product();
    if (to_sparse) {  // one special prime only
        product[0] = reduce(ring_.chain().special[0].value, ring_.chain().q[0]);
    }
    const Words factor = uploaded(ring_.memory(), product);
    const Packing packing = entry.packing(ring_.chain());
    SwitchKey key{packing, Words(ring_.memory(), entry.words(ring_.chain()))};
    const std::size_t part = packing.extended() * ring_.degree();
    const Words parts = ring_.polynomial(2 * packing.extended());
    Word* b = parts.get();
    Word* a = parts.get() + part;
    Word* special = b + entry.limbs * ring_.degree();
    for (std::size_t digit = 0; digit < entry.digits; ++digit) {
        const Secret<Stream> error{stream_of(error_seed_.value, entry, digit)};
        sample_error(ring_, error.value, b, 0, entry.limbs);
        sample_error(ring_, error.value, special, ring_.size_q(), entry.special);
        ring_.forward(b, entry.limbs);
        ring_.forward(special, entry.special, ring_.size_q());
        sample_uniform_part(ring_, seed_, entry, digit, a);
        // A digit of a raised ciphertext is the same modulo all primes.
        std::size_t begin = 0;
        std::size_t end = entry.limbs;
        if (copies) {
            content = part_of_sparse(digit);
        } else if (entry.kind != KeyEntry::Kind::to_dense) {
            const BlockConstants own = ring_.digit(digit, entry.limbs);
            begin = own.first;
            end = own.first + own.size;
        }
        launch(part,
               Mask{ring_.log_degree(), entry.limbs, ring_.size_q(), ring_.primes(), a,
                    secret.get(), content.get(), factor.get(), begin, end, b},
               "key");
        Word* to = key.words.get() + 2 * digit * packing.words();
        pack(packing, b, to);
        pack(packing, a, to + packing.words());
    }
    return key;
}

EvaluationKeys KeyMaker::make(const KeyNeeds& needs, const KeyProgress& progress) const {
    EvaluationKeys keys;
    const std::vector<KeyEntry> entries = entries_of(needs, ring_.chain());
    for (const KeyEntry& entry : entries) {
        if (progress) {
            progress(entry.name, entry.number, entries.size());
        }
        keep(keys, entry, make(entry));
    }
    return keys;
}

}  // namespace atlasc::ckks
