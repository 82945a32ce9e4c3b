// A GPU that computes nothing: what it would be asked to do, as JSON.
//
//     launches program FILE        a program that atlasc compiled; the processor seconds of the host too
//     launches program FILE BYTES  the same, where something else leaves so much of the memory
//     launches program FILE graphs the third time, where bootstraps are graphs
//     launches bootstraps FILE     of atlasc/emit/parameter_set.py, with --copies 1 32
//     launches stages FILE         the same, by stages of a bootstrap
//     launches calls FILE          of such a set, those of conformance/calls.hpp
//     launches calls LOG_DEGREE LEVELS SPECIAL_PRIMES
#include <cstdlib>
#include <ctime>
#include <iostream>

#include "atlasc/program_file.hpp"
#include "ckks/ckks_engine.hpp"
#include "ckks/keys/key_files.hpp"
#include "tests/runtime_cuda/conformance/calls.hpp"
#include "tests/runtime_cuda/conformance/programs.hpp"

namespace {

using namespace atlasc;

/// With keys that nobody made. From here on what the device is asked to do is counted.
template <typename Engine = ckks::CkksEngine>
std::unique_ptr<Engine> counting_engine(const Interface& interface,
                                                  std::shared_ptr<ckks::Memory> memory) {
    const ckks::Chain chain = ckks::chain_of(interface.parameters);
    auto ground = std::make_unique<ckks::Ground>(chain, std::move(memory));
    stand_in::Tally& tally = stand_in::tally();
    tally.begun = true;
    ckks::Role role = ckks::fresh_role(interface, *ground);
    tally.begun = false;  // the engine tries its transforms
    auto engine = std::make_unique<Engine>(std::move(ground), std::move(role));
    tally.begun = true;
    return engine;
}

Values inputs_of(const Interface& interface, Engine& engine) {
    Values inputs;
    for (const EncryptedInput& input : interface.inputs) {
        const Vector slots(engine.slots(), 0.0);
        for (std::size_t part = 0; part < input.layout.ciphertexts(); ++part) {
            inputs[input.name].push_back(engine.encrypt(slots, input.level));
        }
    }
    return inputs;
}

/// Masks that hide no token.
std::map<std::string, Tensor> masks_of(const Interface& interface) {
    std::map<std::string, Tensor> masks;
    for (const PublicInput& input : interface.publics) {
        masks[input.name] = {input.shape, Vector(count_of(input.shape), 1.0)};
    }
    return masks;
}

/// Prints what was done since `start`, when the tally was cleared.
void print(const std::string& name, std::clock_t start, const ckks::CkksEngine& engine) {
    const double host = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    std::cout << "{\"name\": \"" << name << "\", \"host\": " << host
              << ", \"memory\": " << engine.memory().peak()
              << ", \"graphs\": " << stand_in::tally().graphs
              << ", \"in graphs\": " << stand_in::tally().in_graphs << ", \"kernels\": {";
    const char* separator = "";
    for (const auto& [kernel, work] : stand_in::tally().work) {
        std::cout << separator << "\"" << kernel << "\": {\"launches\": " << work.launches
                  << ", \"bytes\": " << work.bytes << ", \"limbs\": " << work.limbs << "}";
        separator = ", ";
    }
    std::cout << "}, \"launches\": [";
    separator = "";
    for (const auto& [launch, count] : stand_in::tally().launches) {
        const auto& [kernel, blocks, bytes, forwards, backwards, products, rotated, gathered] =
            launch;
        std::cout << separator << "[" << count << ", \"" << kernel << "\", " << blocks << ", "
                  << bytes << ", " << forwards << ", " << backwards << ", " << products << ", "
                  << rotated << ", " << gathered << "]";
        separator = ", ";
    }
    std::cout << "]}" << std::endl;
}

/// Prints what a bootstrap does, whole or stage by stage.
class Staged final : public ckks::CkksEngine {
public:
    using CkksEngine::CkksEngine;

    Ciphertexts transform(const Ciphertexts& xs, const std::vector<GiantStep>& steps,
                          bool chained) override {
        begin_stage(raised_ ? "CtS" : "StC");
        return CkksEngine::transform(xs, steps, chained);
    }
    Ciphertext raise_modulus(const Ciphertext& x, int level, std::size_t copies) override {
        begin_stage("ModRaise");
        raised_ = true;
        return CkksEngine::raise_modulus(x, level, copies);
    }
    Ciphertext rotate_sum(const Ciphertext& x, const std::vector<std::size_t>& amounts) override {
        begin_stage("copies");
        return CkksEngine::rotate_sum(x, amounts);
    }
    Ciphertext conjugate(const Ciphertext& x) override {
        begin_stage("conjugation");
        Ciphertext made = CkksEngine::conjugate(x);
        begin_stage("EvalMod");
        return made;
    }
    void bootstrap(const Ciphertexts& xs, std::size_t period, const std::string& name, int level,
                   bool by_stages) {
        bootstrap_many(xs, period, level);  // encodes its diagonals
        name_ = name;
        by_stages_ = by_stages;
        raised_ = false;
        numbers_.clear();
        stage_ = "begin";
        begin();
        bootstrap_many(xs, period, level);
        end();
        by_stages_ = false;
    }

private:
    void begin_stage(const std::string& stage) {
        if (by_stages_) {
            end();
            stage_ = stage + (numbers_[stage]++ == 0 ? "" : " " + std::to_string(numbers_[stage]));
            begin();
        }
    }
    void begin() {
        stand_in::tally().clear();
        start_ = std::clock();
    }
    void end() { print(by_stages_ ? name_ + " " + stage_ : name_, start_, *this); }

    std::string name_;
    std::string stage_;
    std::map<std::string, int> numbers_;  ///< stages of a name
    bool by_stages_ = false;
    bool raised_ = false;
    std::clock_t start_ = 0;
};

void program(const std::string& path, std::uint64_t bytes, int times) {
    const TensorFile weights(path, TensorFile::large_header);
    const StoredProgram stored(weights);
    const auto memory = std::make_shared<ckks::Memory>(0);
    const auto engine = counting_engine(stored.interface(), memory);
    const ckks::Array<char> others(*memory, bytes == 0 ? 0 : memory->budget() - bytes);
    const Values inputs = inputs_of(stored.interface(), *engine);
    const auto masks = masks_of(stored.interface());
    const auto record = std::make_shared<const Record>(weights);
    engine->bootstrap_by(record);
    Context context(*engine, *record, weights, masks);
    for (int before = 1; before < times; ++before) {
        stored.execute(context, inputs);
    }
    stand_in::tally().clear();
    const std::clock_t start = std::clock();
    stored.execute(context, inputs);
    print("program", start, *engine);
}

void bootstraps(const std::string& path, bool by_stages) {
    const conformance::Bootstrapped set = conformance::bootstrapped(path);
    const auto engine = counting_engine<Staged>(set.interface, std::make_shared<ckks::Memory>(0));
    engine->bootstrap_by(set.record);
    for (const std::size_t copies : {std::size_t{1}, conformance::copies}) {
        for (const std::size_t count : {1, 2}) {
            const Vector slots(engine->slots(), 0.0);
            const Ciphertexts xs(count, engine->encrypt(slots, 3));
            engine->bootstrap(xs, engine->slots() / copies,
                              std::string(copies == 1 ? "bootstrap_" : "bootstrap_narrow_") +
                                  (count == 1 ? "one" : "two"),
                              *set.interface.parameters.bootstrap_level, by_stages);
        }
    }
}

/// What the second call does: the first one makes what is kept.
void calls(conformance::Bootstrapped set) {
    conformance::add_rotations(set.interface);
    const auto engine = counting_engine(set.interface, std::make_shared<ckks::Memory>(0));
    const Vector vector = conformance::random_slots(engine->slots());
    const conformance::Calls calls(*engine, vector);
    for (const int level : conformance::priced_levels(set.interface.parameters.max_level)) {
        const Ciphertext x = engine->encrypt(vector, level);
        const Ciphertext y = engine->encrypt(vector, level);
        calls.each(x, y, [&](const char* name, const std::function<void()>& call) {
            call();
            stand_in::tally().clear();
            const std::clock_t start = std::clock();
            call();
            print(std::string(name) + " " + std::to_string(level), start, *engine);
        });
    }
}

int run(const std::vector<std::string>& arguments) {
    const std::string kind = arguments.empty() ? "" : arguments[0];
    const bool whole = arguments.size() == 2;
    if (kind == "program" && (whole || arguments.size() == 3)) {
        const bool graphs = !whole && arguments[2] == "graphs";
        setenv("ATLASC_GRAPHS", graphs ? "required" : "off", 1);
        program(arguments[1], whole || graphs ? 0 : std::stoull(arguments[2]), graphs ? 3 : 1);
    } else if ((kind == "bootstraps" || kind == "stages") && whole) {
        setenv("ATLASC_GRAPHS", "off", 1);
        bootstraps(arguments[1], kind == "stages");
    } else if (kind == "calls" && whole) {
        calls(conformance::bootstrapped(arguments[1]));
    } else if (kind == "calls" && arguments.size() == 4) {
        calls({conformance::leveled(std::stoi(arguments[1]), std::stoi(arguments[2]),
                                    std::stoi(arguments[3])),
               nullptr, ""});
    } else {
        throw Error("launches program FILE [BYTES or graphs], launches bootstraps FILE, launches "
                    "stages FILE, launches calls FILE, or launches calls LOG_DEGREE LEVELS SPECIAL_PRIMES");
    }
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    setenv("ATLASC_STAND_IN", "large", 1);
    try {
        return run({argv + 1, argv + argc});
    } catch (const Error& error) {
        std::cerr << "error: " << error.what() << ": " << error.why << '\n';
        return 2;
    }
}
