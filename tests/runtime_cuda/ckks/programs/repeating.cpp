// Plaintexts that repeat, on any device: the values of short transforms against those of whole ones,
// and products of rotated ciphertexts against the definition. Prints what differs, nothing where all
// is right.
#include <algorithm>
#include <cmath>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "atlasc/base/error.hpp"
#include "ckks/ring/chain.hpp"
#include "ckks/plaintexts/encoder.hpp"
#include "ckks/ring/packing.hpp"
#include "ckks/ring/rotated_products.hpp"
#include "kernel.hpp"
#include "rows.hpp"
#include "tests/runtime_cuda/conformance/programs.hpp"

namespace {

using namespace atlasc::ckks;

atlasc::Vector random_slots(std::size_t count) {
    std::uniform_real_distribution<double> number(-1.0, 1.0);
    atlasc::Vector slots(count);
    std::generate(slots.begin(), slots.end(), [&] { return number(generator); });
    return slots;
}

atlasc::Vector repeated(const atlasc::Vector& once, std::size_t slots) {
    atlasc::Vector all;
    while (all.size() < slots) {
        all.insert(all.end(), once.begin(), once.end());
    }
    return all;
}

/// Some vectors of a period, each as slots and as what says that it repeats, and one without a period
/// among them. From one period to the next it is 2^log_step times.
void repeating_plaintexts(const Chain& chain, int log_step) {
    auto memory = std::make_shared<Memory>(0);
    const Ring ring(*memory, chain);
    Encoder encoder(ring);
    constexpr double scale = 0x1p16;  // roundings of whole and short transforms agree
    constexpr std::size_t vectors = 11;
    const std::size_t limbs = chain.q.size();
    for (std::size_t period = ring.slots(); period > 0; period >>= log_step) {
        const std::size_t repeats = ring.slots() / period;
        std::vector<atlasc::Vector> slots;
        std::vector<atlasc::Plaintext> plaintexts;
        for (std::size_t at = 0; at < vectors; ++at) {
            const atlasc::Vector once = random_slots(at == 4 ? ring.slots() : period);
            slots.push_back(repeated(once, ring.slots()));
            if (at % 2 == 0) {
                plaintexts.emplace_back(slots.back());
            } else {
                plaintexts.emplace_back(atlasc::Deferred{0, [once] { return once; }, repeats});
            }
        }
        std::vector<const atlasc::Plaintext*> pointers;
        std::vector<double> scales;
        for (const atlasc::Plaintext& plaintext : plaintexts) {
            pointers.push_back(&plaintext);
            scales.push_back(scale);
        }
        scales[5] *= 2;
        const auto plains = encoder.plains(pointers, scales, limbs, ring.size_p());
        for (std::size_t at = 0; at < vectors; ++at) {
            const std::vector<Word> whole = downloaded(
                encoder.encode(slots[at], scales[at], limbs).get(), limbs * ring.degree());
            const PlainValues values = plains[at].values();
            bool equal = (plains[at].log_run > 0) == (at != 4 && repeats >= 8);
            for (std::size_t place = 0; place < whole.size(); ++place) {
                equal = equal && values[place] == whole[place];
            }
            expect(equal, "vector " + std::to_string(at) + " of slots that repeat after " +
                              std::to_string(period));
        }
    }
}

/// Bits of the largest prime.
int prime_bits(const std::vector<Prime>& primes) {
    int bits = 0;
    for (const Prime& q : primes) {
        bits = std::max(bits, static_cast<int>(std::log2(static_cast<double>(q.value))) + 1);
    }
    return bits;
}

/// All numbers are q - 1, so a sum of products is their number modulo q.
void largest_products(const Chain& chain, std::size_t count_of_babies, int log_run) {
    std::vector<Prime> primes = chain.q;
    primes.insert(primes.end(), chain.special.begin(), chain.special.end());
    const auto log_degree = static_cast<int>(std::log2(static_cast<double>(chain.degree)));
    const std::size_t extended = primes.size() * chain.degree;
    Row largest(extended);
    for (std::size_t at = 0; at < extended; ++at) {
        largest[at] = primes[at / chain.degree].value - 1;
    }
    Row values(extended >> log_run);
    for (std::size_t at = 0; at < values.size(); ++at) {
        values[at] = largest[at << log_run];
    }
    const std::size_t limbs = chain.q.size();
    const std::size_t size_p = chain.special.size();
    const Addends addends{largest.data(), largest.data(), primes.size(), nullptr};
    const InnerProduct baby{log_degree, limbs, limbs, size_p, 0, primes.data(), nullptr,
                            Packing(chain, limbs, size_p), {}, nullptr, addends, 1, 1, false,
                            nullptr};
    const std::vector<InnerProduct> babies(count_of_babies, baby);
    constexpr std::size_t sums = 5;
    const std::vector<PlainValues> plains(sums * babies.size(), {values.data(), log_run});
    Row found(sums * 2 * extended);
    std::vector<Word*> out;
    for (std::size_t sum = 0; sum < sums; ++sum) {
        out.push_back(&found[sum * 2 * extended]);
    }
    const RotatedProducts kernel{log_degree, limbs, limbs, size_p, primes.data(), babies.data(),
                                 babies.size(), plains.data(), sums, out.data(),
                                 log_run >= RotatedProducts::log_tile, prime_bits(primes)};
    launch(kernel.calls(), kernel, "");
    for (std::size_t at = 0; at < found.size(); ++at) {
        const Prime& q = primes[at / chain.degree % primes.size()];
        if (fuses_rotations(q.value) && found[at] != count_of_babies) {
            expect(false, std::to_string(count_of_babies) + " largest products modulo " +
                              std::to_string(q.value));
            return;
        }
    }
}

/// Babies of one key, rotated and not, times plaintexts for some sums.
void rotated_products(const Chain& chain, std::size_t count_of_babies, int log_run,
                      std::size_t sums) {
    auto memory = std::make_shared<Memory>(0);
    const Ring ring(*memory, chain);
    std::vector<Prime> primes = chain.q;
    primes.insert(primes.end(), chain.special.begin(), chain.special.end());
    const std::size_t count = ring.size_q() - 1;
    const std::size_t size_p = ring.size_p();
    const std::size_t extended = (count + size_p) * ring.degree();
    const auto extended_row = [&](std::size_t of_q, std::size_t degree) {
        Row row = limbs(primes, 0, of_q, degree);
        const Row special = limbs(primes, ring.size_q(), size_p, degree);
        row.insert(row.end(), special.begin(), special.end());
        return row;
    };
    constexpr std::size_t digits = 3;
    const Packing packing(ring.chain(), count + 1, size_p);  // the key reaches higher than the digits
    Row digit_words;
    Row key(2 * digits * packing.words());
    for (std::size_t digit = 0; digit < digits; ++digit) {
        const Row own = extended_row(count, ring.degree());
        digit_words.insert(digit_words.end(), own.begin(), own.end());
        for (std::size_t part = 0; part < 2; ++part) {
            pack(packing, extended_row(count + 1, ring.degree()).data(),
                 &key[(2 * digit + part) * packing.words()]);
        }
    }
    const Row added = limbs(primes, 0, count, ring.degree());
    const Word* special_products = ring.special_products();
    std::vector<InnerProduct> babies;
    std::uint32_t galois = 1;
    for (std::size_t baby = 0; baby < count_of_babies; ++baby) {
        const bool turns = galois != 1;
        const Addends addends{added.data(), turns ? nullptr : added.data(), count,
                              special_products};
        babies.push_back({ring.log_degree(), count, ring.size_q(), size_p, turns ? digits : 0,
                          primes.data(), turns ? digit_words.data() : nullptr, packing, {},
                          turns ? key.data() : nullptr, addends, galois,
                          inverse_galois(ring, galois), false, nullptr});
        const auto order = static_cast<std::uint32_t>(2 * ring.degree());
        galois = baby == 3 ? order - 1 : galois * 5 % order;  // the conjugation too
    }
    const Row values = extended_row(count, ring.degree() >> log_run);
    std::vector<PlainValues> plains(sums * babies.size(), {values.data(), log_run});
    plains[babies.size() + 1].words = nullptr;
    plains[babies.size() + 2] = {&values[values.size() - 1], 63};  // one number for all
    Row wider = values;  // with a limb behind the first that is not read
    const std::size_t limb = ring.degree() >> log_run;
    wider.insert(wider.begin() + static_cast<std::ptrdiff_t>(limb), limb, ~Word{0});
    plains[babies.size() + 3] = {wider.data(), log_run, ring.degree(), ring.degree()};
    Row found[2] = {Row(sums * 2 * extended), Row(sums * 2 * extended)};
    std::vector<Word*> out[2];
    for (std::size_t sum = 0; sum < sums; ++sum) {
        out[0].push_back(&found[0][sum * 2 * extended]);
        out[1].push_back(&found[1][sum * 2 * extended]);
    }
    RotatedProducts kernel{ring.log_degree(), count, ring.size_q(), size_p, primes.data(),
                           babies.data(), babies.size(), plains.data(), sums, out[0].data(),
                           log_run >= RotatedProducts::log_tile, prime_bits(primes)};
    launch(kernel.calls(), kernel, "");
    kernel.out = out[1].data();
    for (std::size_t call = 0; call < kernel.calls(); ++call) {
        kernel(call);
    }
    for (std::size_t at = 0; at < found[0].size(); ++at) {
        const std::size_t limb = at / ring.degree() % (count + size_p);
        const Prime& q = primes[prime_of(limb, count, ring.size_q())];
        if (fuses_rotations(q.value) && found[0][at] != found[1][at]) {
            expect(false, std::to_string(count_of_babies) + " babies, runs of 2^" +
                              std::to_string(log_run));
            return;
        }
    }
}

void all() {
    constexpr std::size_t few = 6;
    constexpr std::size_t many = 43;  // plaintexts of more than a block's memory holds
    for (const int log_degree : {11, 12, 13, 14}) {  // odd and even numbers of stages
        // Long vectors take one more group of stages. They meet every third period: small rings meet
        // all lengths of the short vectors that periods lead to.
        const bool small = log_degree < 13;
        const int log_step = small ? 1 : 3;
        const atlasc::Interface interface = conformance::leveled(log_degree, 2, 2);
        atlasc::Parameters parameters = interface.parameters;
        parameters.moduli->primes = {50, 50, 30, 40};
        parameters.moduli->special = {50, 50};
        const Chain fast = chain_of(parameters);
        parameters.moduli->primes = {60, 60, 50, 58};  // fast on some devices, and not on others
        parameters.moduli->special = {60, 50};
        const Chain mixed = chain_of(parameters);
        repeating_plaintexts(fast, log_step);
        repeating_plaintexts(mixed, log_step);
        if (small) {  // products go tile by tile: a larger ring has more tiles
            for (const int log_run : {least_log_run(), log_degree - 1}) {
                rotated_products(fast, 5, log_run, few);
                rotated_products(fast, 5, log_run, many);
            }
            rotated_products(mixed, 5, 5, many);
        }
        if (log_degree == 11) {
            rotated_products(mixed, 130, 5, many);  // more than a block's memory holds twice
            parameters.moduli->primes.assign(19, 50);  // as many as a set with bootstraps has
            const Chain long_chain = chain_of(parameters);
            for (const std::size_t babies : {std::size_t{64}, std::size_t{65}}) {
                largest_products(long_chain, babies, 5);
                largest_products(mixed, babies, 5);
            }
            largest_products(fast, 64, least_log_run());
            largest_products(mixed, 64, least_log_run());
        }
    }
}

}  // namespace

int main() {
    try {
        all();
    } catch (const atlasc::Error& error) {
        std::cerr << error.what() << ": " << error.why << '\n';
        return 2;
    }
    return 0;
}
