#include "ckks/ring/transforms.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "atlasc/base/numbers.hpp"
#include "ckks/ring/chain.hpp"
#include "ckks/ring/whole_transforms.hpp"
#include "devices/host/check_kernels.hpp"
#include "atlasc/base/threads.hpp"
#include "devices/host/vectors/ntt.hpp"
#include "devices/host/vectors/vector_kernels.hpp"

namespace atlasc::ckks {
namespace {

Roots powers(Word root, const Prime& q, int log_degree, Cpu cpu) {
    const std::size_t degree = std::size_t{1} << log_degree;
    Roots roots{std::vector<Word>(degree), std::vector<Word>(degree)};
    Word power = 1;
    for (std::size_t at = 0; at < degree; ++at) {
        const std::size_t place = reverse_bits(static_cast<std::uint32_t>(at), log_degree);
        const Factor factor = factor_of(power, q.value, cpu);
        roots.values[place] = factor.value;
        roots.quotients[place] = factor.quotient;
        power = multiply(power, root, q);
    }
    return roots;
}

NttTable table_of(const Prime& q, Word root, int log_degree) {
    const Cpu cpu = cpu_for(q.value);
    const Word inverse = power(root, q.value - 2, q);
    const Word scale = power(Word{1} << log_degree, q.value - 2, q);
    // The inverse of the square root of -1.
    const Word last = power(inverse, Word{1} << (log_degree - 1), q);
    NttTable table{};
    table.q = q.value;
    table.log_degree = log_degree;
    table.cpu = cpu;
    table.forward = powers(root, q, log_degree, cpu);
    table.backward = powers(inverse, q, log_degree, cpu);
    table.scale = factor_of(scale, q.value, cpu);
    table.last = factor_of(multiply(scale, last, q), q.value, cpu);
    return table;
}

}  // namespace

int fast_prime_bits() { return fast_bits; }
bool ends_divisions() { return true; }
bool begins_conversions() { return false; }
int most_log_run(int log_degree) { return log_degree - least_forward; }
bool fuses_rotations(Word q) { return cpu_for(q) != Cpu::portable; }
int least_log_run() { return 4; }
bool gathers_numbers() { return false; }
std::size_t most_sums() { return 32; }
std::size_t together() { return 1; }

struct Transforms::Tables {
    std::vector<NttTable> primes;
    std::vector<Prime> moduli;  ///< of the tables
    std::size_t special;
    std::size_t degree;

    /// Calls transform(result, operand, table, polynomial, limb) for all limbs. Those of one prime come
    /// one after another: they share the table.
    template <typename Transform>
    void each(const Limbs& limbs, const Transform& transform) const {
        const std::size_t size_q = primes.size() - special;
        const std::size_t length = degree >> limbs.log_run;
        const std::size_t size = limbs.copies * limbs.count;
        const std::size_t polynomials = limbs.polynomials;
        parallel(polynomials * size, polynomials, [&](std::size_t begin, std::size_t end) {
            for (std::size_t at = begin; at < end; ++at) {
                const std::size_t polynomial = at % polynomials;
                const std::size_t limb = at / polynomials % limbs.count;
                const std::size_t start = at / polynomials * length;
                if (limbs.skips(polynomial, limb)) {
                    continue;
                }
                transform(limbs.out[polynomial] + start, limbs.in[polynomial] + start,
                          primes[limbs.prime(limb, size_q)], polynomial, limb);
            }
        });
    }

    void forward(Word* out, const Word* in, const NttTable& table, int log_run) const {
        const int log_degree = table.log_degree - log_run;
        if (out != in) {
            std::memcpy(out, in, sizeof(Word) << log_degree);
        }
        (table.cpu == Cpu::portable ? forward_portable : vector_kernels().forward)(out, table,
                                                                                   log_degree);
    }
    void backward(Word* out, const Word* in, const NttTable& table) const {
        (table.cpu == Cpu::portable ? backward_portable : vector_kernels().backward)(out, in,
                                                                                    table);
    }

    /// The quotients of a limb, of which the subtrahend is still in a near cache.
    void divide(const Limbs& limbs, std::size_t polynomial, std::size_t limb,
                const Word* subtrahend, const Prime& q) const {
        const Word* dividend = limbs.dividends[polynomial] + limb * degree;
        Word* quotient = limbs.quotients[polynomial] + limb * degree;
        const Word factor = limbs.inverses[limb];
        if (cpu_for(q.value) != Cpu::portable) {
            vector_kernels().divide(quotient, dividend, subtrahend, factor, degree, q);
            return;
        }
        for (std::size_t at = 0; at < degree; ++at) {
            quotient[at] = multiply(subtract(dividend[at], subtrahend[at], q), factor, q);
        }
    }
};

Transforms::Transforms(Memory&, int log_degree, const std::vector<Prime>& primes,
                       std::size_t special)
    : tables_(std::make_unique<Tables>()) {
    tables_->degree = std::size_t{1} << log_degree;
    tables_->special = special;
    tables_->primes.resize(primes.size());
    tables_->moduli = primes;
    check_kernels(primes);  // and what cpu() refuses is refused here, not on another thread
    parallel(primes.size(), 1, [&](std::size_t begin, std::size_t end) {
        for (std::size_t at = begin; at < end; ++at) {
            const Word root = root_of(primes[at], tables_->degree);
            tables_->primes[at] = table_of(primes[at], root, log_degree);
        }
    });
}

Transforms::~Transforms() = default;

void Transforms::forward(const Limbs& limbs) const {
    const std::size_t size_q = tables_->primes.size() - tables_->special;
    tables_->each(limbs, [&](Word* out, const Word* in, const NttTable& table,
                             std::size_t polynomial, std::size_t limb) {
        tables_->forward(out, in, table, limbs.log_run);
        if (limbs.inverses != nullptr) {
            tables_->divide(limbs, polynomial, limb, out,
                            tables_->moduli[limbs.prime(limb, size_q)]);
        }
    });
}

void Transforms::backward(const Limbs& limbs) const {
    tables_->each(limbs, [this](Word* out, const Word* in, const NttTable& table, std::size_t,
                                std::size_t) { tables_->backward(out, in, table); });
}

/// One stage of butterflies after another, as in Cheon, Kim, Kim and Song 2017, section 3.2.
struct Fourier::Tables {
    std::vector<Complex> roots;  ///< of a stage of length L: L/2 from place L/2 on

    explicit Tables(std::size_t slots) : roots(slots) {
        const std::size_t order = 4 * slots;
        for (std::size_t length = 2; length <= slots; length *= 2) {
            std::size_t power = 1;  // of 5
            for (std::size_t at = 0; at < length / 2; ++at) {
                const std::size_t turn = power % (4 * length) * (order / (4 * length));
                const double angle =
                    2.0 * pi * static_cast<double>(turn) / static_cast<double>(order);
                roots[length / 2 + at] = {std::cos(angle), std::sin(angle)};
                power = power * 5 % order;
            }
        }
    }
};

Fourier::Fourier(Memory&, int log_slots)
    : log_slots_(log_slots), tables_(std::make_unique<Tables>(std::size_t{1} << log_slots)) {}

Fourier::~Fourier() = default;

namespace {

/// Slots that were put in order again become coefficients in bit-reversed order.
void backward(std::vector<Complex>& values, const std::vector<Complex>& all_roots) {
    const std::size_t slots = values.size();
    for (std::size_t length = slots; length >= 2; length /= 2) {
        const Complex* roots = &all_roots[length / 2];
        for (std::size_t start = 0; start < slots; start += length) {
            Complex* top = &values[start];
            Complex* bottom = top + length / 2;
            for (std::size_t at = 0; at < length / 2; ++at) {
                const Complex u = top[at];
                const Complex v = bottom[at];
                const Complex difference{u.x - v.x, u.y - v.y};
                const Complex w = roots[at];
                top[at] = {u.x + v.x, u.y + v.y};
                bottom[at] = {difference.x * w.x + difference.y * w.y,
                              difference.y * w.x - difference.x * w.y};
            }
        }
    }
}

}  // namespace

void Fourier::to_coefficients(Complex* data, std::size_t count, double factor, int log_run) {
    const int log_slots = log_slots_ - log_run;
    const std::size_t slots = std::size_t{1} << log_slots;
    const double share = factor / static_cast<double>(slots);
    parallel(count, 1, [&](std::size_t begin, std::size_t end) {
        static thread_local std::vector<Complex> values;
        values.resize(slots);
        for (std::size_t vector = begin; vector < end; ++vector) {
            Complex* own = data + vector * slots;
            for (std::size_t at = 0; at < slots; ++at) {
                values[at] = own[reverse_bits(static_cast<std::uint32_t>(at), log_slots)];
            }
            backward(values, tables_->roots);
            for (std::size_t at = 0; at < slots; ++at) {
                const Complex value =
                    values[reverse_bits(static_cast<std::uint32_t>(at), log_slots)];
                own[at] = {value.x * share, value.y * share};
            }
        }
    });
}

void Fourier::to_slots(Complex* data) {
    const std::size_t slots = std::size_t{1} << log_slots_;
    std::vector<Complex> values(slots);
    for (std::size_t at = 0; at < slots; ++at) {
        values[reverse_bits(static_cast<std::uint32_t>(at), log_slots_)] = data[at];
    }
    for (std::size_t length = 2; length <= slots; length *= 2) {
        const Complex* roots = &tables_->roots[length / 2];
        for (std::size_t start = 0; start < slots; start += length) {
            Complex* top = &values[start];
            Complex* bottom = top + length / 2;
            for (std::size_t at = 0; at < length / 2; ++at) {
                const Complex u = top[at];
                const Complex v = bottom[at];
                const Complex w = roots[at];
                const Complex product{v.x * w.x - v.y * w.y, v.x * w.y + v.y * w.x};
                top[at] = {u.x + product.x, u.y + product.y};
                bottom[at] = {u.x - product.x, u.y - product.y};
            }
        }
    }
    for (std::size_t at = 0; at < slots; ++at) {
        data[reverse_bits(static_cast<std::uint32_t>(at), log_slots_)] = values[at];
    }
}

}  // namespace atlasc::ckks
