// Products of digits and keys, a limb at a time.
#include <algorithm>
#include <vector>

#include "devices/host/fast_kernels.hpp"
#include "atlasc/base/threads.hpp"
#include "devices/host/vectors/lanes.hpp"
#include "devices/host/vectors/ntt.hpp"

namespace atlasc::ckks {
namespace {

constexpr std::size_t most_places = 4096;  ///< numbers of a limb that are computed at a time

/// Neighbours of which one of each run is stored.
void spread_runs(const Word* in, int log_run, std::size_t length, Word* out) {
    for (std::size_t at = 0; at < length; at += std::size_t{1} << log_run) {
        std::fill_n(out + at, std::size_t{1} << log_run, in[at >> log_run]);
    }
}

/// What a thread computes before X^galois, and digits whose runs are spread.
struct Scratch {
    std::vector<Word> straight;
    std::vector<Word> spread;
};

/// A limb, which X^galois mixes. `from` is the permutation, or empty where there is none.
void multiply_limb(const InnerProduct& kernel, std::size_t limb,
                   const std::vector<std::uint32_t>& from, Scratch& scratch) {
    const std::size_t degree = std::size_t{1} << kernel.log_degree;
    const std::size_t extended = (kernel.limbs + kernel.size_p) << kernel.log_degree;
    const bool runs = kernel.log_run != 0;
    const std::size_t room = std::min(runs ? most_places / 8 : most_places, degree);
    const Prime& q = kernel.primes[prime_of(limb, kernel.limbs, kernel.size_q)];
    const std::size_t start = limb << kernel.log_degree;
    if (cpu_for(q.value) == Cpu::portable) {
        for (std::size_t at = start; at < start + degree; ++at) {
            kernel(at);
        }
        return;
    }
    scratch.straight.resize(2 * degree);
    scratch.spread.resize(runs ? kernel.digits * room : 0);
    Word* straight = scratch.straight.data();
    Word* spread = scratch.spread.data();
    const std::size_t key_limb =
        limb < kernel.limbs ? limb : kernel.packing.limbs + limb - kernel.limbs;
    const Word* key =
        kernel.digits == 0 ? nullptr : kernel.key_words + kernel.packing.start(key_limb);
    const Addends& addends = kernel.addends;
    const bool added = limb < addends.limbs;
    for (std::size_t first = 0; first < degree; first += room) {
        const std::size_t at = start + first;
        for (std::size_t digit = 0; digit < (runs ? kernel.digits : 0); ++digit) {
            spread_runs(kernel.digit_words + ((digit * extended + at) >> kernel.log_run),
                        kernel.log_run, room, spread + digit * room);
        }
        lanes::inner_product(
            straight + first, straight + degree + first,
            runs ? spread : kernel.digit_words + at, runs ? room : extended,
            {key, kernel.packing.bits(key_limb), first}, kernel.packing.words(), kernel.digits,
            {added ? addends.first + at : nullptr,
             added && addends.second != nullptr ? addends.second + at : nullptr,
             added && addends.factors != nullptr ? addends.factors[limb] : 1},
            room, q);
    }
    for (std::size_t part = 0; part < 2; ++part) {
        lanes::permute(kernel.out + part * extended + start, straight + part * degree,
                       from.empty() ? nullptr : from.data(), kernel.accumulate, degree, q);
    }
}

std::vector<std::uint32_t> permutation_of(const InnerProduct& kernel) {
    return kernel.back == 1 ? std::vector<std::uint32_t>()
                            : permutation(kernel.log_degree, kernel.galois);
}

}  // namespace

void launch(std::size_t count, const InnerProduct& kernel, const char*) {
    const std::vector<std::uint32_t> from = permutation_of(kernel);
    parallel(count >> kernel.log_degree, 1, [&](std::size_t begin, std::size_t end) {
        static thread_local Scratch scratch;
        for (std::size_t limb = begin; limb < end; ++limb) {
            multiply_limb(kernel, limb, from, scratch);
        }
    });
}

void launch(std::size_t count, const InnerProducts& kernel, const char*) {
    std::vector<InnerProduct> terms(kernel.terms, kernel.terms + kernel.count);
    std::vector<std::vector<std::uint32_t>> from;
    for (InnerProduct& term : terms) {
        term.accumulate = kernel.accumulate || !from.empty();
        term.out = kernel.out;
        from.push_back(permutation_of(term));
    }
    // All terms of a limb in turn: their sum stays in a near cache, and so do digits that they share.
    parallel(count >> kernel.log_degree, 1, [&](std::size_t begin, std::size_t end) {
        static thread_local Scratch scratch;
        for (std::size_t limb = begin; limb < end; ++limb) {
            for (std::size_t at = 0; at < terms.size(); ++at) {
                multiply_limb(terms[at], limb, from[at], scratch);
            }
        }
    });
}

}  // namespace atlasc::ckks
