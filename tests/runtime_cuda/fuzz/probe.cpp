// Parts of the runtime, one at a time:
//   probe client|server ...      the roles; a server plays the calls of the small program alone
//   probe program|interface FILE writes the file of a role
//   probe inputs FILE COUNT      writes inputs of it
//   probe sha256 STEP [1]        digest of standard input, added in steps; 1: portable code
//   probe header FILE            opens a file, prints its arrays and the memory in MB
//   probe clock PLACE            the line that says how far a server is
//   probe record FILE            executes with any record and weights

#include <iostream>
#include <iterator>
#include <string>

#include "atlasc/backend.hpp"
#include "atlasc/base/numbers.hpp"
#include "atlasc/roles.hpp"
#include "memory.hpp"
#include "program.hpp"

namespace {

using namespace atlasc;

void print_digest(std::size_t step, bool portable) {
    const std::string text((std::istreambuf_iterator<char>(std::cin)), {});
    Sha256 state(portable);
    for (std::size_t at = 0; at < text.size(); at += step) {
        state.add(text.data() + at, std::min(step, text.size() - at));
    }
    std::cout << text_of(state.digest()) << '\n';
}

void print_header(const std::string& path) {
    const TensorFile file(path);
    for (const std::string& name : file.names()) {
        std::cout << name << '\n';
    }
    std::cout << peak_memory() / 1024 << '\n';
}

void write_inputs(const std::string& path, std::size_t count) {
    TensorWriter writer(Metadata{});
    for (const auto& [name, tensor] : small::inputs(count)) {
        writer.add(name, tensor);
    }
    writer.write(path);
}

/// Replays the program's function by the record in a file.
void run_record(const std::string& path) {
    make_keys(small::interface(), path + ".keys");
    const auto engine =
        built_backend().server_engine(small::interface(), path + ".keys/evaluation.key", 0);
    Client client(small::interface(), path + ".keys/secret.key");
    const TensorFile sent(PlainFile("the query", client.encrypt(small::inputs(2)).bytes));
    Message query = read_message(sent, "query", small::interface(), *engine);
    const TensorFile weights(path);
    const Record record(weights);
    Context context(*engine, record, weights, query.publics);
    small::execute(context, std::move(query.values));
}

}  // namespace

int main(int argc, char** argv) {
    const std::string role = argc > 1 ? argv[1] : "";
    const std::string file = argc > 2 ? argv[2] : "";
    const std::size_t number = argc > 3 ? plain_number(argv[3]).value_or(0) : 0;
    if (role == "client") {
        return client_main(argc - 1, argv + 1);
    }
    if (role == "server") {
        const std::string text = small::text();
        return server_main(argc - 1, argv + 1, small::execute,
                           text_of(sha256(text.data(), text.size())));
    }
    return reported([&] {
        if (role == "program" || role == "interface") {
            small::write_program(file, role, small::text());
        } else if (role == "inputs") {
            write_inputs(file, number);
        } else if (role == "sha256") {
            print_digest(plain_number(file).value_or(1), number == 1);
        } else if (role == "header") {
            print_header(file);
        } else if (role == "clock") {
            Clock(1, std::cerr, Clock::Seconds(0)).begin("add", file);
        } else if (role == "record") {
            run_record(file);
        } else {
            throw Error("which part?");
        }
    });
}
