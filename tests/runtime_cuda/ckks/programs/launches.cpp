// A program on a GPU that computes nothing: what it would be asked to do, as JSON, and the seconds
// of the host. ATLASC_PROGRAM is the namespace of an emitted program.
#include <chrono>
#include <cstdlib>
#include <iostream>

#include "atlasc/program_file.hpp"
#include "ckks/ckks_engine.hpp"
#include "ckks/keys/key_files.hpp"
#include "program.hpp"

namespace {

using namespace atlasc;

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

void run(const std::string& weights_path) {
    const TensorFile weights(weights_path, TensorFile::large_header);
    const StoredProgram stored(weights);
    const Interface& interface = stored.interface();
    auto ground = std::make_unique<ckks::Ground>(ckks::chain_of(interface.parameters), 0);
    stand_in::Tally& tally = stand_in::tally();
    tally.begun = true;
    ckks::Role role = ckks::fresh_role(interface, *ground);
    tally.begun = false;  // the engine tries its transforms
    ckks::CkksEngine engine(std::move(ground), std::move(role));
    tally.begun = true;
    Values inputs = inputs_of(interface, engine);
    const auto masks = masks_of(interface);
    const auto record = std::make_shared<const Record>(weights);
    engine.bootstrap_by(record);
    Context context(engine, *record, weights, masks);

    tally.work.clear();
    const auto start = std::chrono::steady_clock::now();
    ATLASC_PROGRAM::execute(context, std::move(inputs));
    const std::chrono::duration<double> host = std::chrono::steady_clock::now() - start;

    std::cout << "{\"host\": " << host.count() << ", \"memory\": " << engine.memory().peak()
              << ", \"kernels\": {";
    const char* separator = "";
    for (const auto& [name, work] : tally.work) {
        std::cout << separator << "\"" << name << "\": {\"launches\": " << work.launches
                  << ", \"bytes\": " << work.bytes << ", \"limbs\": " << work.limbs << "}";
        separator = ", ";
    }
    std::cout << "}}\n";
}

}  // namespace

int main(int, char** argv) {
    setenv("ATLASC_STAND_IN", "large", 1);
    try {
        run(argv[1]);
        return 0;
    } catch (const Error& error) {
        std::cerr << "error: " << error.what() << ": " << error.why << '\n';
        return 2;
    }
}
