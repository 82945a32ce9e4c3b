#include "devices/host/inner_products.hpp"

#include <algorithm>

#include "devices/host/fast_kernels.hpp"
#include "atlasc/base/threads.hpp"
#include "devices/host/vectors/ntt.hpp"
#include "devices/host/vectors/vector_kernels.hpp"

namespace atlasc::ckks {
namespace {

constexpr std::size_t most_spread = 512;  ///< places whose runs are spread at a time

/// Neighbours of which one of each run is stored.
void spread_runs(const Word* in, int log_run, std::size_t length, Word* out) {
    for (std::size_t at = 0; at < length; at += std::size_t{1} << log_run) {
        std::fill_n(out + at, std::size_t{1} << log_run, in[at >> log_run]);
    }
}

/// Both parts of a product before X^galois, at places of a limb.
void straight_product(const InnerProduct& kernel, std::size_t limb, std::size_t first,
                      std::size_t length, Word* b, Word* a, const Prime& q) {
    static thread_local std::vector<Word> spread;
    const std::size_t extended = (kernel.limbs + kernel.size_p) << kernel.log_degree;
    const bool runs = kernel.log_run != 0;
    const std::size_t room = runs ? std::min(most_spread, length) : length;
    spread.resize(runs ? kernel.digits * room : 0);
    const std::size_t key_limb = kernel.key_limb(limb);
    const Word* key =
        kernel.digits == 0 ? nullptr : kernel.key_words + kernel.packing.start(key_limb);
    const Addends& addends = kernel.addends;
    const bool added = limb < addends.limbs;
    for (std::size_t done = 0; done < length; done += room) {
        const std::size_t at = (limb << kernel.log_degree) + first + done;
        for (std::size_t digit = 0; digit < (runs ? kernel.digits : 0); ++digit) {
            spread_runs(kernel.digit_words + ((digit * extended + at) >> kernel.log_run),
                        kernel.log_run, room, spread.data() + digit * room);
        }
        vector_kernels().inner_product(
            b + done, a + done, runs ? spread.data() : kernel.digit_words + at,
            runs ? room : extended,
            {key, kernel.packing.bits(key_limb), first + done, kernel.gap.digit, kernel.gap.digits},
            kernel.packing.words(), kernel.digits,
            {added ? addends.first + at : nullptr,
             added && addends.second != nullptr ? addends.second + at : nullptr,
             added && addends.factors != nullptr ? addends.factors[limb] : 1},
            room, q);
    }
}

/// Calls work(limb, first place, prime) for all tiles of a kernel's result. Places of limbs whose prime
/// has no fast kernels get the kernel itself.
template <typename Kernel, typename Work>
void each_tile(std::size_t count, const Kernel& kernel, const Work& work) {
    const Tiling tiling(kernel.log_degree);
    const auto run = [&](std::size_t begin, std::size_t end) {
        for (std::size_t number = begin; number < end; ++number) {
            const std::size_t limb = number / tiling.in_limb;
            const std::size_t first = number % tiling.in_limb * tiling.tile;
            const Prime& q = kernel.primes[prime_of(limb, kernel.limbs, kernel.size_q)];
            if (cpu_for(q.value) != Cpu::portable) {
                work(limb, first, tiling.tile, q);
                continue;
            }
            const std::size_t start = (limb << kernel.log_degree) + first;
            for (std::size_t at = start; at < start + tiling.tile; ++at) {
                kernel(at);
            }
        }
    };
    parallel(count / tiling.tile, tiles_at_once, run);
}

}  // namespace

Tiling::Tiling(int log_degree)
    : tile(std::min(most_in_tile, std::size_t{1} << log_degree)),
      in_limb((std::size_t{1} << log_degree) / tile) {}

std::vector<std::uint32_t> places_of(const InnerProduct& kernel) {
    return kernel.galois == 1 ? std::vector<std::uint32_t>()
                              : permutation(kernel.log_degree, kernel.galois);
}

void turned_product(const InnerProduct& kernel, std::size_t limb, std::size_t first, std::size_t tile,
                    const std::vector<std::uint32_t>& from, bool accumulate, Word* b, Word* a,
                    const Prime& q) {
    if (from.empty() && !accumulate) {
        straight_product(kernel, limb, first, tile, b, a, q);
        return;
    }
    alignas(64) Word straight[2 * most_in_tile];
    const std::size_t source = from.empty() ? first : from[first] / tile * tile;
    straight_product(kernel, limb, source, tile, straight, straight + tile, q);
    const std::uint32_t* order = from.empty() ? nullptr : from.data() + first;
    vector_kernels().permute(b, straight, order, source, accumulate, tile, q);
    vector_kernels().permute(a, straight + tile, order, source, accumulate, tile, q);
}

void launch(std::size_t count, const InnerProduct& kernel, const char*) {
    const std::vector<std::uint32_t> from = places_of(kernel);
    const std::size_t part = (kernel.limbs + kernel.size_p) << kernel.log_degree;
    each_tile(count, kernel,
              [&](std::size_t limb, std::size_t first, std::size_t tile, const Prime& q) {
                  Word* out = kernel.out + (limb << kernel.log_degree) + first;
                  turned_product(kernel, limb, first, tile, from, kernel.accumulate, out, out + part,
                                 q);
              });
}

void launch(std::size_t count, const InnerProducts& kernel, const char*) {
    std::vector<std::vector<std::uint32_t>> from;
    for (std::size_t at = 0; at < kernel.count; ++at) {
        from.push_back(places_of(kernel.terms[at]));
    }
    const std::size_t part = (kernel.limbs + kernel.size_p) << kernel.log_degree;
    each_tile(count, kernel,
              [&](std::size_t limb, std::size_t first, std::size_t tile, const Prime& q) {
                  Word* out = kernel.out + (limb << kernel.log_degree) + first;
                  for (std::size_t at = 0; at < kernel.count; ++at) {
                      turned_product(kernel.terms[at], limb, first, tile, from[at],
                                     kernel.accumulate || at != 0, out, out + part, q);
                  }
              });
}

}  // namespace atlasc::ckks
