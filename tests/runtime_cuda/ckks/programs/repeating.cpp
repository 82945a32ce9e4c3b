// Plaintexts that repeat, on any device: the values of short transforms against those of whole ones.
// Prints what differs, nothing where all is right.
#include <algorithm>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "atlasc/base/error.hpp"
#include "ckks/ring/chain.hpp"
#include "ckks/ring/encoder.hpp"
#include "tests/runtime_cuda/conformance/programs.hpp"

namespace {

using namespace atlasc::ckks;

std::mt19937_64 generator(7);

void expect(bool right, const std::string& what) {
    if (!right) {
        std::cout << what << '\n';
    }
}

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
/// among them.
void repeating_plaintexts(const Chain& chain) {
    auto memory = std::make_shared<Memory>(0);
    const Ring ring(*memory, chain);
    Encoder encoder(ring);
    constexpr double scale = 0x1p16;  // roundings of whole and short transforms agree
    constexpr std::size_t vectors = 11;
    const std::size_t limbs = chain.q.size();
    for (std::size_t period = 1; period <= ring.slots(); period *= 2) {
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
        const auto plains = encoder.plains(pointers, scales, limbs, true);
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

void all() {
    for (const int log_degree : {11, 12, 13, 14}) {  // odd and even numbers of stages
        const atlasc::Interface interface = conformance::leveled(log_degree, 2, 2);
        atlasc::Parameters parameters = interface.parameters;
        parameters.moduli->primes = {50, 50, 30, 40};
        parameters.moduli->special = {50, 50};
        repeating_plaintexts(chain_of(parameters));
        parameters.moduli->primes = {60, 60, 50, 58};  // fast on some devices, and not on others
        parameters.moduli->special = {60, 50};
        repeating_plaintexts(chain_of(parameters));
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
