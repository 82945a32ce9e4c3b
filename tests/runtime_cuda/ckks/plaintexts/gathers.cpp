// Numbers of plaintexts that the device finds in copies of a program's arrays, against those that the
// host makes: bit for bit, on any device. Prints what differs, nothing where all is right.
#include <cmath>
#include <iostream>
#include <limits>
#include <string>
#include <vector>

#include "atlasc/base/error.hpp"
#include "atlasc/record.hpp"
#include "ckks/plaintexts/encoder.hpp"
#include "tests/runtime_cuda/ckks/programs/rows.hpp"
#include "tests/runtime_cuda/conformance/programs.hpp"

namespace {

using namespace atlasc;
using Source = Lookup::Source;
using ckks::generator;

constexpr std::size_t elements = 500'000;  ///< more than one buffer of an encoder holds
constexpr std::size_t limbs = 2;

double random_number() { return std::uniform_real_distribution<double>(-1.0, 1.0)(generator); }

Tensor random_tensor(bool of_floats) {
    Tensor tensor{{elements}, Vector(elements)};
    for (double& number : tensor.values) {
        number = of_floats ? static_cast<float>(random_number()) : random_number();
    }
    return tensor;
}

/// Entries below a bound; one of eight is `nowhere`.
Table random_table(std::size_t size, std::size_t repeats, std::int32_t bound) {
    std::vector<std::int32_t> numbers(size);
    for (std::int32_t& number : numbers) {
        number = generator() % 8 == 0 ? nowhere
                                      : static_cast<std::int32_t>(
                                            generator() % static_cast<std::uint32_t>(bound));
    }
    return {numbers, repeats};
}

Lookup lookup(Source source, std::size_t argument, std::vector<PlaceOf> places) {
    return {source, argument, {}, std::move(places)};
}

struct Case {
    std::string name;
    SlotsRecord slots;
    bool copied;  ///< the device has the numbers of its arrays
};

class Check {
public:
    Check(const ckks::Ring& ring, bool roomy)
        : ring_(ring), host_(ring, false), device_(ring, true), roomy_(roomy) {}

    /// Both make the same of the same, or refuse it with one message.
    void same(const std::vector<Case>& cases, const std::vector<Tensor>& tensors) {
        Arrays arrays(tensors);
        const std::uint64_t before = ring_.memory().used();
        std::vector<Plaintext> made;
        std::vector<const Plaintext*> pointers;
        for (const Case& one : cases) {
            const std::size_t period = period_of(one.slots, ring_.slots());
            const auto plan = [&] { return plan_of(one.slots, ring_.slots(), arrays); };
            made.emplace_back(Deferred{0, [plan] { return built(plan()); },
                                       ring_.slots() / period, plan});
        }
        for (const Plaintext& plaintext : made) {
            pointers.push_back(&plaintext);
        }
        const std::vector<double> scales(made.size(), 0x1p30);
        const auto found = outcome(device_, pointers, scales);
        const auto wanted = outcome(host_, pointers, scales);
        for (std::size_t at = 0; at < cases.size(); ++at) {
            ckks::expect(found[at] == wanted[at], cases[at].name + " differs");
        }
        const bool copied = ring_.memory().used() > before;
        ckks::expect(copied == (roomy_ && cases[0].copied), cases[0].name + ": copies");
        device_.clear();
        ckks::expect(ring_.memory().used() == before, cases[0].name + ": memory stays in use");
    }

    /// Copies of a call that ended are let go at the next one's first, and not before.
    void ends_with_the_call(const Case& one) {
        const std::uint64_t before = ring_.memory().used();
        std::uint64_t first = 0;
        for (int call = 0; call < 3; ++call) {
            Arrays arrays({random_tensor(true)});
            const auto plan = [&] { return plan_of(one.slots, ring_.slots(), arrays); };
            const Plaintext plaintext = Deferred{0, [plan] { return built(plan()); }, 1, plan};
            for (int again = 0; again < 2; ++again) {
                device_.plains({&plaintext}, {0x1p30}, limbs, 0);
                const std::uint64_t used = ring_.memory().used() - before;
                first = first == 0 ? used : first;
                ckks::expect(used > elements * sizeof(float) && used == first,
                             "copies of a call: " + std::to_string(used));
            }
        }
        device_.clear();
    }

private:
    /// The values of each, or why they are refused.
    std::vector<std::string> outcome(ckks::Encoder& encoder,
                                     const std::vector<const Plaintext*>& all,
                                     const std::vector<double>& scales) {
        std::vector<std::string> found;
        try {
            for (const ckks::Plain& plain : encoder.plains(all, scales, limbs, ring_.size_p())) {
                const auto values = ckks::downloaded(plain.words->get() + plain.start, plain.size);
                found.emplace_back(reinterpret_cast<const char*>(values.data()),
                                   values.size() * sizeof values[0]);
                found.back() += std::to_string(plain.log_run);
            }
        } catch (const Error& error) {
            found.assign(all.size(), error.what() + error.why);
        }
        return found;
    }

    const ckks::Ring& ring_;
    ckks::Encoder host_;
    ckks::Encoder device_;
    bool roomy_;
};

void all(std::uint64_t budget) {
    const Interface interface = conformance::leveled(13, 2, 2);
    const ckks::Chain chain = ckks::chain_of(interface.parameters);
    const auto memory = std::make_shared<ckks::Memory>(budget);
    const ckks::Ring ring(*memory, chain);
    const auto slots = static_cast<long>(ring.slots());
    Check check(ring, budget == 0);

    const Table rows = random_table(ring.slots(), 1, elements / 2);
    const Table runs = random_table(ring.slots() / 16, 1, elements / 2);
    const Table columns = random_table(64, ring.slots() / 256, elements / 2);
    const Table few = random_table(512, ring.slots() / 1024, elements / 2);
    const Table half = random_table(ring.slots() / 2, 2, elements / 2);
    const Table mask = random_table(32, 1, 1);
    const Lookup literal{Source::literal, 0, random_tensor(false).values, {{&columns, 3}}};
    const auto weight = [&](std::size_t argument, long rotation) {
        return lookup(Source::argument, argument, {{&rows, -rotation}, {&columns, rotation}});
    };
    const Case diagonal{"a diagonal", {{{1.0, {weight(0, 5)}}}, 0}, true};
    const std::vector<Case> cases{
        diagonal,
        {"doubles", {{{0.3, {weight(1, -7)}}}, 0}, true},
        {"a pair", {{{0.5, {weight(0, 1)}}, {{0.0, -0.5}, {weight(0, slots - 1)}}}, 0}, true},
        {"a rotation by angles",
         {{{0.7, {weight(0, 1), lookup(Source::argument, 1, {{&runs, 16}})}},
           {{-0.1, 0.3}, {weight(1, 9), literal}},
           {{1.0 / 3.0, 0.0}, {literal, lookup(Source::mask, 0, {{&mask, 11}})}}},
          0},
         true},
        {"runs", {{{2.0, {lookup(Source::argument, 0, {{&runs, 32}})}}}, 0}, true},
        {"short", {{{1.0, {lookup(Source::argument, 1, {{&few, 2}, {&columns, -1}})}}}, 0}, true},
        {"twice", {{{1.0, {lookup(Source::argument, 1, {{&half, 2}, {&columns, -1}})}}}, 0}, true},
        {"a number", {{{0.25, {}}}, 0}, true},
        {"roots", {{{1.0, {weight(0, 2), lookup(Source::root, 12, {{&rows, 4}})}}}, 0}, true},
    };
    const std::vector<Tensor> tensors{random_tensor(true), random_tensor(false)};
    check.same(cases, tensors);
    for (const double wrong : {0x1p90, std::numeric_limits<double>::infinity(), std::nan("")}) {
        std::vector<Tensor> large = tensors;
        large[0].values[elements / 3] = wrong;
        check.same({diagonal}, large);
    }
    // A sum of tables may lead outside of an array, and does here: nothing is read.
    std::vector<Tensor> less = tensors;
    less[0].values.resize(elements / 2);
    check.same({{diagonal.name + " that leads outside", diagonal.slots, false}}, less);
    less[0].values.clear();
    check.same({{diagonal.name + " of nothing", diagonal.slots, false}}, less);
    if (budget == 0) {
        check.ends_with_the_call(diagonal);
    }
}

}  // namespace

int main() {
    try {
        all(0);
        all(std::uint64_t{24} << 20);  // too little for copies
    } catch (const Error& error) {
        std::cerr << error.what() << ": " << error.why << '\n';
        return 2;
    }
    return 0;
}
