#include "devices/host/fast_kernels.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "devices/host/vectors/ntt.hpp"
#include "devices/host/vectors/vector_kernels.hpp"
#include "atlasc/base/threads.hpp"

namespace atlasc::ckks {
namespace {

constexpr std::size_t chunk = 4096;  ///< numbers of a limb that a thread takes at a time

bool fast(const Prime& q) { return cpu_for(q.value) != Cpu::portable; }

/// Calls work(limb, first place, places) for all places of all limbs.
template <typename Work>
void each_chunk(std::size_t limbs, int log_degree, const Work& work) {
    const std::size_t degree = std::size_t{1} << log_degree;
    const std::size_t size = std::min(chunk, degree);
    const std::size_t chunks = degree / size;
    parallel(limbs * chunks, 1, [&](std::size_t begin, std::size_t end) {
        for (std::size_t at = begin; at < end; ++at) {
            work(at / chunks, at % chunks * size, size);
        }
    });
}

template <typename Kernel>
void one_by_one(const Kernel& kernel, std::size_t begin, std::size_t length) {
    for (std::size_t at = begin; at < begin + length; ++at) {
        kernel(at);
    }
}

/// Calls work(row, first place, index, places, prime) for the places of all rows: limbs, one part
/// after another. Rows of `prime_of_row` that is not fast get the kernel, element by element.
template <typename Kernel, typename PrimeOf, typename Work>
void each_row(const Kernel& kernel, std::size_t count, int log_degree, const PrimeOf& prime_of_row,
              const Work& work) {
    each_chunk(count >> log_degree, log_degree,
               [&](std::size_t row, std::size_t first, std::size_t length) {
                   const std::size_t at = (row << log_degree) + first;
                   const Prime& q = prime_of_row(row);
                   if (fast(q)) {
                       work(row, first, at, length, q);
                   } else {
                       one_by_one(kernel, at, length);
                   }
               });
}

/// The same of kernels that have a shape: work(limb, first place, index, places, prime).
template <typename Kernel, typename Work>
void each_limb(const Kernel& kernel, std::size_t count, const Work& work) {
    const Shape& shape = kernel.shape;
    const auto limb_of = [&](std::size_t row) { return row % shape.limbs; };
    each_row(
        kernel, count, shape.log_degree,
        [&](std::size_t row) -> const Prime& { return kernel.primes[limb_of(row)]; },
        [&](std::size_t row, std::size_t first, std::size_t at, std::size_t length,
            const Prime& q) { work(limb_of(row), first, at, length, q); });
}

/// An element of an operand.
const Word* place_in(const Source& source, const Shape& shape, std::size_t at) {
    return source.words + shape.in(at, source.limbs);
}

/// The values from a place on.
PlainValues row_of(const PlainValues& values, std::size_t at) {
    return {values.word(at), values.log_run};
}

}  // namespace

std::vector<std::uint32_t> permutation(int log_degree, std::uint32_t galois) {
    std::vector<std::uint32_t> from(std::size_t{1} << log_degree);
    for (std::size_t at = 0; at < from.size(); ++at) {
        from[at] = permuted(static_cast<std::uint32_t>(at), galois, log_degree);
    }
    return from;
}

namespace {

/// The terms of a sum, by its number, in one of its parts: added to `out` with `accumulate`.
void add_terms(const Combine& kernel, std::size_t of, std::size_t part, std::size_t limb,
               std::size_t at, bool accumulate, Word* out, std::size_t length, const Prime& q) {
    lanes::Term terms[Combine::most_terms];
    std::size_t count = 0;
    for (std::size_t one = kernel.sum[of].first_term; one < kernel.sum[of].terms; ++one) {
        const Source& x = kernel.term[one].x;
        if (part < kernel.term[one].parts) {
            terms[count++] = {x.words + ((part * x.limbs) << kernel.log_degree) + at,
                              {kernel.factor(of, one) + limb, kernel.log_degree}};
        }
    }
    const Word last = count == 2 ? *terms[1].plain.words : 0;
    if (!accumulate && count == 2 && *terms[0].plain.words == 1 &&
        (last == 1 || last == q.value - 1)) {  // most sums are of two, which takes no product
        const auto run = last == 1 ? vector_kernels().add : vector_kernels().subtract;
        run(out, terms[0].x, terms[1].x, length, q);
    } else {
        vector_kernels().sum_of_products(out, terms, count, accumulate, length, q);
    }
}

}  // namespace

void launch(std::size_t count, const Combine& kernel, const char*) {
    const int log_degree = kernel.log_degree;
    const std::size_t part = static_cast<std::size_t>(kernel.limbs) << log_degree;
    each_row(
        kernel, count, log_degree,
        [&](std::size_t row) -> const Prime& { return kernel.primes[row % kernel.limbs]; },
        [&](std::size_t row, std::size_t first, std::size_t, std::size_t length, const Prime& q) {
            // A chunk of the sum stays in the cache.
            const std::size_t of = row / kernel.limbs;
            const std::size_t limb = row % kernel.limbs;
            const std::size_t at = (limb << log_degree) + first;
            const Combine::Sum& own = kernel.sum[of];
            Word* const d = own.out + at;
            bool begun = own.accumulate;
            for (std::size_t one = own.first_product; one < own.products; ++one) {
                const Combine::Product& product = kernel.product[one];
                const Word* a = product.a.words + at;
                const Word* b = product.b.words + at;
                for (Word time = 0; time < own.times; ++time, begun = true) {
                    vector_kernels().add_product({d, d + part, d + 2 * part},
                                                 {a, a + (product.a.limbs << log_degree)},
                                                 {b, b + (product.b.limbs << log_degree)},
                                                 length, !begun, q);
                }
            }
            for (std::size_t number = 0; number < own.parts; ++number) {
                if (own.first_term != own.terms || !begun) {
                    add_terms(kernel, of, number, limb, at, begun, d + number * part, length, q);
                }
            }
            if (kernel.constant(of)[limb] != 0) {
                vector_kernels().plus_number(d, d, kernel.constant(of)[limb], length, q);
            }
        });
}

void launch(std::size_t count, const TimesPolynomial& kernel, const char*) {
    const Shape& shape = kernel.shape;
    each_limb(kernel, count,
              [&](std::size_t limb, std::size_t first, std::size_t at, std::size_t length,
                  const Prime& q) {
                  vector_kernels().multiply(
                      kernel.out + at, place_in(kernel.a, shape, at),
                      row_of(kernel.plain, (limb << shape.log_degree) + first), length, q);
              });
}

void launch(std::size_t count, const Divide& kernel, const char*) {
    each_row(
        kernel, count, kernel.log_degree,
        [&](std::size_t row) -> const Prime& { return kernel.primes[row]; },
        [&](std::size_t row, std::size_t, std::size_t at, std::size_t length, const Prime& q) {
            vector_kernels().divide(kernel.out + at, kernel.values + at, kernel.minuend + at,
                                    kernel.inverse[row], length, q);
        });
}

void launch(std::size_t count, const Lift& kernel, const char*) {
    const int log_degree = kernel.log_degree;
    each_chunk(count >> log_degree, log_degree,
               [&](std::size_t limb, std::size_t first, std::size_t length) {
                   const std::size_t at = (limb << log_degree) + first;
                   const Prime& from = kernel.primes[kernel.from];
                   const Prime& to = kernel.primes[kernel.first + limb];
                   if (fast(from) && fast(to)) {
                       vector_kernels().lift(kernel.out + at, kernel.coefficients + first, length,
                                             from, to);
                   } else {
                       one_by_one(kernel, at, length);
                   }
               });
}

void launch(std::size_t count, const SumOfProducts& kernel, const char*) {
    const Shape shape{kernel.log_degree, static_cast<std::uint32_t>(kernel.extended)};
    each_row(
        kernel, count, kernel.log_degree,
        [&](std::size_t row) -> const Prime& {
            return kernel.primes[prime_of(row % kernel.extended, kernel.limbs, kernel.size_q)];
        },
        [&](std::size_t row, std::size_t first, std::size_t at, std::size_t length,
            const Prime& q) {
            lanes::Term terms[SumOfProducts::most];
            for (std::size_t term = 0; term < kernel.count; ++term) {
                const std::size_t in_plain = ((row % kernel.extended) << kernel.log_degree) + first;
                terms[term] = {place_in(kernel.terms[term].x, shape, at),
                               row_of(kernel.terms[term].plain, in_plain)};
            }
            vector_kernels().sum_of_products(kernel.out + at, terms, kernel.count,
                                             kernel.accumulate, length, q);
        });
}

void launch(std::size_t count, const Round& kernel, const char*) {
    constexpr double most = 0x1p52;
    const std::size_t half = std::size_t{1} << (kernel.log_degree - 1);
    bool all_fast = true;
    for (std::size_t limb = 0; limb < kernel.extended; ++limb) {
        all_fast = all_fast && fast(kernel.primes[prime_of(limb, kernel.limbs, kernel.size_q)]);
    }
    // Both parts of a complex number become coefficients, N/2 apart.
    each_chunk(count >> kernel.log_degree, kernel.log_degree - 1,
               [&](std::size_t vector, std::size_t first, std::size_t length) {
        alignas(64) static thread_local double parts[2][chunk];
        const Complex* in = kernel.in + vector * half + first;
        double largest = 0.0;
        for (std::size_t at = 0; at < length; ++at) {
            const bool kept = ((first + at) & kernel.rest) == 0;
            parts[0][at] = kept ? std::rint(in[at].x) : 0.0;
            parts[1][at] = kept ? std::rint(in[at].y) : 0.0;
            largest = std::max({largest, std::fabs(parts[0][at]), std::fabs(parts[1][at])});
        }
        if (!(largest < most) || !all_fast) {
            one_by_one(kernel, 2 * vector * half + first, length);
            one_by_one(kernel, (2 * vector + 1) * half + first, length);
            return;
        }
        for (std::size_t limb = 0; limb < kernel.extended; ++limb) {
            const Prime& q = kernel.primes[prime_of(limb, kernel.limbs, kernel.size_q)];
            for (std::size_t part = 0; part < 2; ++part) {
                Word* out = kernel.out +
                            (2 * (vector * kernel.extended + limb) + part) * half + first;
                vector_kernels().residues(out, parts[part], length, q);
            }
        }
    });
}

namespace {

constexpr std::size_t blocks = 16;  ///< of ChaCha20, at a time

/// Calls work(first) for every sixteen indices, and kernel(at) for all where that is not possible.
template <typename Kernel, typename Work>
void each_sixteen(std::size_t count, const Kernel& kernel, const Work& work) {
    parallel(count / blocks, 16, [&](std::size_t begin, std::size_t end) {
        for (std::size_t group = begin; group < end; ++group) {
            if (cpu() != Cpu::portable) {
                work(group * blocks);
            } else {
                one_by_one(kernel, group * blocks, blocks);
            }
        }
    });
    one_by_one(kernel, count / blocks * blocks, count % blocks);
}

}  // namespace

void launch(std::size_t count, const Uniform& kernel, const char*) {
    each_sixteen(count, kernel, [&](std::size_t at) {
        // A limb has a multiple of 64 residues, so that all are of one prime.
        const std::size_t start = 4 * at;
        const auto prime =
            static_cast<std::uint32_t>(kernel.first + (start >> kernel.log_degree));
        const std::uint32_t nonce[3] = {kernel.stream.key, kernel.stream.digit, prime};
        const std::size_t mask = (std::size_t{1} << kernel.log_degree) - 1;
        std::uint32_t words[16][16];
        vector_kernels().chacha20(words, kernel.stream.seed,
                                  static_cast<std::uint32_t>(start & mask), 4, nonce);
        for (std::size_t block = 0; block < blocks; ++block) {
            for (std::size_t number = 0; number < 4; ++number) {
                Wide bits = 0;
                for (std::size_t word = 0; word < 4; ++word) {
                    bits = (bits << 32) | words[4 * number + word][block];
                }
                kernel.out[start + 4 * block + number] = reduce(bits, kernel.primes[prime]);
            }
        }
    });
}

void launch(std::size_t count, const ErrorResidues& kernel, const char*) {
    each_sixteen(count, kernel, [&](std::size_t at) {
        constexpr std::uint32_t bits = (1U << 21) - 1;
        const std::uint32_t nonce[3] = {kernel.stream.key, kernel.stream.digit, error_domain};
        std::uint32_t words[16][16];
        vector_kernels().chacha20(words, kernel.stream.seed, static_cast<std::uint32_t>(at), 1,
                                  nonce);
        int errors[8 * blocks];
        for (std::size_t block = 0; block < blocks; ++block) {
            for (std::size_t number = 0; number < 8; ++number) {
                errors[8 * block + number] = ones(words[2 * number][block] & bits) -
                                             ones(words[2 * number + 1][block] & bits);
            }
        }
        for (std::size_t limb = 0; limb < kernel.count; ++limb) {
            const Prime& q = kernel.primes[kernel.first + limb];
            Word* out = kernel.out + (limb << kernel.log_degree) + 8 * at;
            for (std::size_t place = 0; place < 8 * blocks; ++place) {
                out[place] = residue(errors[place], q);
            }
        }
    });
}

void convert(const Conversion& c) {
    const std::size_t size = c.block.size;
    const Prime* own = c.block.own;
    const bool narrow = std::all_of(own, own + size, fast);
    // Residues of a tile stay in the nearest cache while all limbs are made of them. Rows that lay a
    // power of two apart would push each other out.
    constexpr std::size_t tile = 256;
    constexpr std::size_t row = tile + 8;
    constexpr std::size_t most = most_in_block;
    const auto work = [&](std::size_t first, std::size_t length) {
        alignas(64) static thread_local Word y[most * row];
        alignas(64) static thread_local Word u[tile];
        alignas(64) static thread_local double sum[tile];
        std::fill(sum, sum + length, 0.5);
        for (std::size_t s = 0; s < size; ++s) {
            const Prime& q = own[s];
            const Word* x = c.residues + (s << c.log_degree) + first;
            if (fast(q)) {
                vector_kernels().scale(y + s * row, sum, x, c.block.inverses[s], length, q);
                continue;
            }
            for (std::size_t at = 0; at < length; ++at) {
                y[s * row + at] = multiply(x[at], c.block.inverses[s], q);
                sum[at] += static_cast<double>(y[s * row + at]) / static_cast<double>(q.value);
            }
        }
        for (std::size_t at = 0; at < length; ++at) {
            u[at] = static_cast<Word>(sum[at]);
        }
        for (std::size_t limb = 0; limb < c.extended; ++limb) {
            const std::size_t prime = prime_of(limb, c.limbs, c.size_q);
            Word* out = c.out + (limb << c.log_degree) + first;
            if (c.values != nullptr && prime >= c.block.first && prime < c.block.first + size) {
                std::memcpy(out, c.values + (limb << c.log_degree) + first, length * sizeof(Word));
                continue;
            }
            const Prime& q = c.primes[prime];
            const Word* hats = c.block.hats + prime;
            if (narrow && fast(q)) {
                vector_kernels().combine(out, y, row, size, hats, c.all, u, c.block.minus[prime],
                                         length, q);
                continue;
            }
            for (std::size_t at = 0; at < length; ++at) {
                Wide total = static_cast<Wide>(u[at]) * c.block.minus[prime];
                for (std::size_t s = 0; s < size; ++s) {
                    total += static_cast<Wide>(y[s * row + at]) * hats[s * c.all];
                }
                out[at] = reduce(total, q);
            }
        }
    };
    each_chunk(1, c.log_degree, [&](std::size_t, std::size_t first, std::size_t length) {
        for (std::size_t at = first; at < first + length; at += tile) {
            work(at, std::min(tile, first + length - at));
        }
    });
}

}  // namespace atlasc::ckks
