#include <iostream>
#include <memory>
#include <optional>
#include <utility>

#include "atlasc/backend.hpp"
#include "atlasc/base/error.hpp"
#include "atlasc/program_file.hpp"
#include "atlasc/roles.hpp"

namespace atlasc {
namespace {

constexpr const char* server_usage =
    "server --program bundle --keys evaluation.key --query query --output answer "
    "[--timing times.json] [--device-memory 40G]";

/// Answers a query; `weights`: path of the file with the weights and the functions.
void execute(const Options& options, const Interface& interface, const Program& program,
             const std::string& weights) {
    const bool timed = options.given("--timing");
    require_new(options["--output"]);
    if (timed) {
        require_new(options["--timing"]);
    }
    const TensorFile query_file(options["--query"]);  // before the keys, which take a while
    Server server(interface, program, options["--keys"], PlainFile(weights),
                  options.size("--device-memory"));
    const Engine& engine = server.engine();
    Message query = read_message(query_file, "query", interface, engine);
    Clock clock(interface.ops, std::cerr);
    if (timed) {
        clock.wait_for(server.engine());
    }
    const Message answer = server.execute(std::move(query), &clock);
    const double seconds = clock.elapsed();
    write_message(options["--output"], "answer", interface, engine, answer);
    if (timed) {
        const std::string times = clock.text(interface.identity, engine.backend().name);
        write_new(options["--timing"], times.data(), times.size(), Access::shared);
    }
    std::cerr << printable(interface.model) << ": executed in " << seconds << " s\n";
}

/// Opens the program's weights, and checks all of them, before any key is loaded.
TensorFile opened(std::optional<PlainFile> file, const Interface& interface) {
    TensorFile weights(file ? std::move(*file) : PlainFile("no weights", TensorWriter({}).sealed()),
                       TensorFile::large_header);
    if (file && weights.fact("program") != interface.identity) {
        throw Error(weights.name() + " has the weights of another program", "",
                    "give the file of the program that this server was built from");
    }
    weights.require(interface.weights);
    return weights;
}

std::shared_ptr<const Record> record_of(const TensorFile& weights) {
    const bool recorded = weights.has("record/code");
    return recorded ? std::make_shared<Record>(weights) : std::make_shared<Record>();
}

/// The server of the program that `--program` names; `calls` gives what it executes of it.
int serve(int argc, char** argv, const std::function<Program(const StoredProgram&)>& calls) {
    return reported([&] {
        const Options options(argc, argv, 1, server_usage,
                              {"--keys", "--program", "--query", "--output"},
                              {"--timing", "--device-memory"});
        const std::string path = part_of(options["--program"], "server/program.safetensors");
        const StoredProgram stored(TensorFile(path, TensorFile::large_header));
        stored.require_no_state();
        execute(options, stored.interface(), calls(stored), path);
    });
}

}  // namespace

Server::Server(Interface interface, Program program, PlainFile keys,
               std::optional<PlainFile> weights, std::uint64_t device_memory)
    : interface_(std::move(interface)),
      program_(std::move(program)),
      weights_(opened(std::move(weights), interface_)),
      record_(record_of(weights_)),
      engine_(built_backend().server_engine(interface_, std::move(keys), device_memory)) {
    engine_->bootstrap_by(record_);
}

Bytes Server::execute(PlainFile query) {
    query.hold(message_bytes(interface_, saved_bytes(*engine_)));
    const Message answer = execute(
        read_message(TensorFile(std::move(query)), "query", interface_, *engine_), nullptr);
    return message_writer(interface_, serialized(answer, "answer", interface_, *engine_)).sealed();
}

Message Server::execute(Message query, Clock* clock) {
    Context context(*engine_, *record_, weights_, query.publics, clock);
    Message answer{{}, {}, query.count, query.query};
    try {
        answer.values = program_(context, std::move(query.values));
        for (const Output& output : interface_.outputs) {
            // A kernel may save a level; the client takes no other than the interface says.
            for (Ciphertext& part : answer.values.at(output.name)) {
                part = engine_->drop_to(part, output.level);
            }
        }
        engine_->wait();
        if (clock != nullptr) {
            clock->end();
        }
    } catch (Error& error) {
        error.where = context.place();
        throw;
    }
    return answer;
}

int server_main(int argc, char** argv, const Program& program, const std::string& text) {
    return serve(argc, argv, [&](const StoredProgram& stored) {
        stored.require_text(text);
        return program;
    });
}

int server_main(int argc, char** argv) {
    return serve(argc, argv, [](const StoredProgram& stored) {
        return [&stored](Context& context, Values inputs) {
            return stored.execute(context, std::move(inputs));
        };
    });
}

}  // namespace atlasc
