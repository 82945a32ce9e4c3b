// Transforms of several polynomials at once, by two kernels each.
#include "ckks/ring/transforms.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>

#include "atlasc/base/error.hpp"
#include "atlasc/base/numbers.hpp"
#include "atlasc/base/threads.hpp"
#include "ckks/ring/chain.hpp"
#include "devices/cuda/conversions.hpp"
#include "devices/cuda/key_rows.hpp"
#include "devices/cuda/vectors.hpp"

namespace atlasc::ckks {
namespace {

/// Whether doubles are faster here than integers. GPUs with half as many units for doubles as for
/// floats are: those of compute capability 8.0, 9.0 and 10.0 say so. Others have a 32nd or a 64th.
bool doubles_are_fast() {
    const char* wanted = std::getenv("ATLASC_GPU");
    if (wanted == nullptr) {
        int device = 0;
        int ratio = 0;
        check(cudaGetDevice(&device), "cudaGetDevice");
        check(cudaDeviceGetAttribute(&ratio, cudaDevAttrSingleToDoublePrecisionPerfRatio, device),
              "cudaDeviceGetAttribute");
        return ratio == 2;
    }
    const std::string name = wanted;
    if (name != "doubles" && name != "integers") {
        throw Error("ATLASC_GPU names no arithmetic", "it is \"" + name + "\"",
                    "set it to doubles or integers, or unset it for what suits the GPU");
    }
    return name == "doubles";
}

/// Place i has the power of rev(i).
void fill_powers(Word root, const Prime& q, const Modulus& modulus, int log_degree, Word* out) {
    Word power = 1;
    for (std::size_t at = 0; at < std::size_t{1} << log_degree; ++at) {
        out[reverse_bits(static_cast<std::uint32_t>(at), log_degree)] =
            modulus.factor(power, q);
        power = multiply(power, root, q);
    }
}

}  // namespace

int fast_prime_bits() { return 60; }
bool ends_divisions() { return true; }
bool begins_conversions() { return true; }
int most_log_run(int log_degree) { return log_degree - 4; }  // passes take eight slots or more
bool fuses_rotations(Word) { return true; }
int least_log_run() { return 0; }
bool gathers_numbers() { return true; }
std::size_t most_sums() { return 256; }
std::size_t together() { return Limbs::most; }

struct Transforms::Tables {
    int log_degree;
    std::size_t size_q;
    std::size_t count;  ///< of primes
    Array<Prime> primes;
    Array<Modulus> moduli;
    Array<Word> forwards;
    Array<Word> backwards;
    Array<Word> last;

    ResidueVectors<true> forward(const Limbs& limbs) const {
        return {limbs, log_degree, size_q, count, primes.get(), moduli.get(), forwards.get(),
                nullptr};
    }
    ResidueVectors<false> backward(const Limbs& limbs) const {
        return {limbs, log_degree, size_q, count, primes.get(), moduli.get(), backwards.get(),
                last.get()};
    }
    template <typename Products>
    void multiply(const Products& products) const {
        const KeyRows<Products> kernel(products,
                                       {moduli.get(), forwards.get(), backwards.get()});
        launch_blocks(kernel.blocks(), kernel, "products of digits and keys");
    }
};

Transforms::Transforms(Memory& memory, int log_degree, const std::vector<Prime>& primes,
                       std::size_t special)
    : tables_(std::make_unique<Tables>()) {
    const std::size_t degree = std::size_t{1} << log_degree;
    std::vector<Word> forwards(primes.size() * degree);
    std::vector<Word> backwards(primes.size() * degree);
    std::vector<Word> last(primes.size());
    std::vector<Modulus> moduli(primes.size());
    const bool doubles = doubles_are_fast();
    parallel(primes.size(), 1, [&](std::size_t begin, std::size_t end) {
        for (std::size_t at = begin; at < end; ++at) {
            const Prime& q = primes[at];
            const Modulus modulus = Modulus::of(q, doubles);
            const Word root = root_of(q, degree);
            fill_powers(root, q, modulus, log_degree, &forwards[at * degree]);
            fill_powers(inverse(root, q), q, modulus, log_degree, &backwards[at * degree]);
            last[at] = modulus.factor(inverse(degree, q), q);
            moduli[at] = modulus;
        }
    });
    tables_->log_degree = log_degree;
    tables_->size_q = primes.size() - special;
    tables_->count = primes.size();
    tables_->primes = uploaded(memory, primes);
    tables_->moduli = uploaded(memory, moduli);
    tables_->forwards = uploaded(memory, forwards);
    tables_->backwards = uploaded(memory, backwards);
    tables_->last = uploaded(memory, last);
}

Transforms::~Transforms() = default;

void Transforms::forward(const Limbs& limbs) const {
    const ResidueVectors<true> vectors = tables_->forward(limbs);
    const std::size_t count = limbs.polynomials * limbs.copies * limbs.count;
    if (!limbs.converts) {
        transform<true>(tables_->log_degree - limbs.log_run, count, vectors,
                        "transform of residues");
        return;
    }
    begin_forward(limbs);
    launch_pass<true, Parts::rows>(tables_->log_degree, count, vectors.in_place(),
                                   "transform of residues");
}

void Transforms::begin_forward(const Limbs& limbs) const {
    constexpr std::size_t resident = 512;  // a large GPU has so many blocks at once
    const ResidueVectors<true> vectors = tables_->forward(limbs);
    if (!limbs.converts) {
        launch_pass<true, Parts::columns>(tables_->log_degree, limbs.polynomials * limbs.count,
                                          vectors, "transform of digits");
        return;
    }
    const Conversions<3> some(vectors);
    if (some.blocks() >= resident) {
        launch_blocks(some.blocks(), some, "conversion of residues");
    } else {
        const Conversions<1> each(vectors);
        launch_blocks(each.blocks(), each, "conversion of residues");
    }
}

void Transforms::key_products(const std::vector<InnerProduct>& products) const {
    for (std::size_t first = 0; first < products.size(); first += EachProduct::most) {
        const InnerProduct& one = products[first];
        EachProduct some{std::min(products.size() - first, EachProduct::most),
                         {one, one, one, one}};
        std::copy_n(products.begin() + static_cast<std::ptrdiff_t>(first), some.count, some.of);
        tables_->multiply(some);
    }
}

void Transforms::key_products(const InnerProducts& sum) const {
    tables_->multiply(SumOfEach{sum});
}

void Transforms::end_backward(const Limbs& limbs) const {
    launch_pass<false, Parts::columns>(tables_->log_degree, limbs.polynomials * limbs.count,
                                       tables_->backward(limbs), "transform of residues");
}

void Transforms::backward(const Limbs& limbs) const {
    transform<false>(tables_->log_degree, limbs.polynomials * limbs.copies * limbs.count,
                     tables_->backward(limbs), "transform of residues");
}

struct Fourier::Tables {
    Array<Complex> nodes;
};

Fourier::Fourier(Memory& memory, int log_slots)
    : log_slots_(log_slots), tables_(std::make_unique<Tables>()) {
    // Node m + i has the root of the stage of length 2m at rev(i): exp(2 pi i 5^rev(i) / 8m).
    const std::size_t slots = std::size_t{1} << log_slots;
    std::vector<Complex> nodes(slots, Complex{1.0, 0.0});
    int bits = 0;
    for (std::size_t m = 1; m < slots; m *= 2, ++bits) {
        std::size_t turn = 1;  // a power of 5, modulo 8m
        for (std::size_t at = 0; at < m; ++at) {
            const double angle =
                2.0 * pi * static_cast<double>(turn) / static_cast<double>(8 * m);
            const std::size_t place =
                bits == 0 ? 0 : reverse_bits(static_cast<std::uint32_t>(at), bits);
            nodes[m + place] = {std::cos(angle), std::sin(angle)};
            turn = turn * 5 % (8 * m);
        }
    }
    tables_->nodes = uploaded(memory, nodes);
}

Fourier::~Fourier() = default;

void Fourier::to_coefficients(Complex* data, std::size_t count, double factor, int log_run) {
    const int log_size = log_slots_ - log_run;
    const double share = std::ldexp(factor, -log_size);
    const ComplexVectors<false> vectors{log_size, data, tables_->nodes.get(), share};
    transform<false>(log_size, count, vectors, "transform of slots");
}

void Fourier::to_slots(Complex* data) {
    const ComplexVectors<true> vectors{log_slots_, data, tables_->nodes.get(), 1.0};
    transform<true>(log_slots_, 1, vectors, "transform of coefficients");
}

}  // namespace atlasc::ckks
