// Products of rotated ciphertexts, tile by tile: neighbouring values of all babies lie in a near cache
// while they are multiplied by the plaintexts of all sums. A rotation takes a tile to a tile.
#include "ckks/ring/rotated_products.hpp"

#include <algorithm>
#include <map>
#include <vector>

#include "devices/host/fast_kernels.hpp"
#include "devices/host/inner_products.hpp"
#include "devices/host/vectors/ntt.hpp"
#include "devices/host/vectors/vector_kernels.hpp"
#include "atlasc/base/threads.hpp"

namespace atlasc::ckks {
namespace {

/// What is computed of a hundred babies stays in a near cache until it is multiplied.
constexpr std::size_t places_at_once = 512;
constexpr std::size_t row_block = 8;  ///< rows of a matrix product come in so many
constexpr std::size_t few_sums = 2;   ///< which leave most of a block empty

struct Tiles {
    const RotatedProducts& kernel;
    std::size_t tile;
    std::size_t run;   ///< values of a tile that share those of all plaintexts
    std::size_t rows;  ///< sums, and rows of zeros
    std::size_t even;  ///< babies, and one of zeros where they are odd
    std::map<std::uint32_t, std::vector<std::uint32_t>> from;  ///< permutations by Galois element

    explicit Tiles(const RotatedProducts& kernel)
        : kernel(kernel),
          tile(std::min(places_at_once, std::size_t{1} << kernel.log_degree)),
          run(tile),
          rows((kernel.sums + row_block - 1) / row_block * row_block),
          even((kernel.count + 1) / 2 * 2) {
        for (std::size_t at = 0; at < kernel.sums * kernel.count; ++at) {
            const PlainValues& plain = kernel.plains[at];
            if (plain.words != nullptr) {
                run = std::min(run, std::size_t{1} << plain.log_run);
            }
        }
        for (std::size_t at = 0; at < kernel.count; ++at) {
            const InnerProduct& baby = kernel.babies[at];
            if (from.count(baby.galois) == 0) {
                from.emplace(baby.galois, places_of(baby));
            }
        }
    }

    /// Parts of neighbouring rows would lie a power of two apart, and push each other out of the cache.
    std::size_t part() const { return tile + 8; }

    /// Sums of products for a tile, one after another.
    void sum_up(const Word* babies, std::size_t at, const Prime& q) const {
        const std::size_t size = kernel.extended() << kernel.log_degree;
        for (std::size_t row = 0; row < 2 * kernel.sums; ++row) {
            const Word* x = babies + row % 2 * part();
            std::vector<lanes::Term> terms;
            for (std::size_t baby = 0; baby < kernel.count; ++baby) {
                const PlainValues& plain = kernel.plains[row / 2 * kernel.count + baby];
                if (plain.words != nullptr) {
                    terms.push_back({x + baby * 2 * part(),
                                     {plain.word(at), plain.log_run}});
                }
            }
            vector_kernels().sum_of_products(kernel.out[row / 2] + row % 2 * size + at,
                                             terms.data(), terms.size(), false, tile, q);
        }
    }

    std::size_t runs() const { return tile / run; }

    /// Values of all plaintexts for each run of a tile: [run][baby][row].
    void gather(std::size_t at, Word* factors) const {
        const std::size_t size = even * rows;
        for (std::size_t sum = 0; sum < kernel.sums; ++sum) {
            for (std::size_t baby = 0; baby < kernel.count; ++baby) {
                const PlainValues& plain = kernel.plains[sum * kernel.count + baby];
                Word* to = factors + baby * rows + sum;
                for (std::size_t place = 0; place < tile; place += run, to += size) {
                    *to = plain.words == nullptr ? 0 : plain[at + place];
                }
            }
        }
    }

    /// Sums over pairs of babies of the products of their values: [run][row].
    void add_pairs(const Word* factors, Word* pairs, const Prime& q) const {
        std::vector<lanes::Term> terms(even / 2);
        for (std::size_t number = 0; number < runs(); ++number) {
            for (lanes::Term& term : terms) {
                term = {factors, {factors + rows, 0}};
                factors += 2 * rows;
            }
            vector_kernels().sum_of_products(pairs + number * rows, terms.data(), terms.size(), false,
                                             rows, q);
        }
    }
};

}  // namespace

void launch(std::size_t, const RotatedProducts& kernel, const char*) {
    const Tiles tiles(kernel);
    const std::size_t tile = tiles.tile;
    const std::size_t degree = std::size_t{1} << kernel.log_degree;
    const std::size_t in_limb = degree / tile;
    const std::size_t part = kernel.extended() << kernel.log_degree;
    parallel(kernel.extended() * in_limb, tiles_at_once, [&](std::size_t begin, std::size_t end) {
        const std::size_t size = tiles.even * tiles.rows;
        std::vector<Word> babies(tiles.even * 2 * tiles.part(), 0);
        std::vector<Word> factors(tiles.runs() * size, 0);
        std::vector<Word> pairs(tiles.runs() * tiles.rows);
        std::vector<Word> unused(tile);
        for (std::size_t number = begin; number < end; ++number) {
            const std::size_t limb = number / in_limb;
            const std::size_t first = number % in_limb * tile;
            const std::size_t at = (limb << kernel.log_degree) + first;
            const Prime& q = kernel.primes[prime_of(limb, kernel.limbs, kernel.size_q)];
            for (std::size_t baby = 0; baby < kernel.count; ++baby) {
                const InnerProduct& product = kernel.babies[baby];
                Word* out = babies.data() + baby * 2 * tiles.part();
                turned_product(product, limb, first, tile, tiles.from.at(product.galois), false, out,
                               out + tiles.part(), q);
            }
            if (kernel.sums <= few_sums) {
                tiles.sum_up(babies.data(), at, q);
                continue;
            }
            tiles.gather(at, factors.data());
            tiles.add_pairs(factors.data(), pairs.data(), q);
            for (std::size_t half = 0; half < 2; ++half) {
                std::vector<Word*> out(tiles.rows, unused.data());
                for (std::size_t sum = 0; sum < kernel.sums; ++sum) {
                    out[sum] = kernel.out[sum] + half * part + at;
                }
                for (std::size_t run = 0; run < tiles.runs(); ++run) {
                    const std::size_t start = run * tiles.run;
                    vector_kernels().matrix_product(
                        out.data(), start, babies.data() + half * tiles.part() + start,
                        2 * tiles.part(), tiles.even, factors.data() + run * size,
                        pairs.data() + run * tiles.rows, tiles.rows, tiles.run, q);
                }
            }
        }
    });
}

}  // namespace atlasc::ckks
