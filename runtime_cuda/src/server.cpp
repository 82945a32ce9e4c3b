#include <chrono>
#include <iostream>

#include "atlasc/backend.hpp"
#include "atlasc/error.hpp"
#include "atlasc/roles.hpp"

namespace atlasc {
namespace {

constexpr const char* usage =
    "server --keys evaluation.key --weights weights.safetensors --query query --output answer "
    "[--device-memory 40G]";

void execute(int argc, char** argv, const Interface& interface, Program program) {
    const Options options(argc, argv, 1, usage, {"--keys", "--weights", "--query", "--output"},
                          {"--device-memory"});
    require_new(options["--output"]);
    Server server(interface, program, options["--keys"], options["--weights"],
                  options.size("--device-memory"));
    Message query = read_message(options["--query"], "query", interface, server.engine());
    const auto started = std::chrono::steady_clock::now();
    const Message answer = server.execute(std::move(query));
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - started;
    write_message(options["--output"], "answer", interface, server.engine(), answer);
    std::cerr << interface.model << ": executed in " << seconds.count() << " s\n";
}

/// Opens the program's weights before any key is loaded.
TensorFile opened(const std::string& path, const Interface& interface) {
    TensorFile weights(path);
    if (weights.fact("program") != interface.identity) {
        throw Error("file " + weights.path() + " has the weights of another program", "",
                    "give the weights of the project that this server was built from");
    }
    return weights;
}

}  // namespace

Server::Server(const Interface& interface, Program program, const std::string& keys,
               const std::string& weights, std::uint64_t device_memory)
    : interface_(interface),
      program_(program),
      weights_(opened(weights, interface)),
      engine_(backend::server_engine(interface, keys, device_memory)) {}

Message Server::execute(Message query) {
    Context context(*engine_, interface_.keys.rotations, weights_, query.publics);
    Message answer{{}, {}, query.count};
    try {
        answer.values = program_(context, std::move(query.values));
    } catch (Error& error) {
        error.where = context.place();
        throw;
    }
    return answer;
}

int server_main(int argc, char** argv, const Interface& interface, Program program) {
    return reported([&] { execute(argc, argv, interface, program); });
}

}  // namespace atlasc
