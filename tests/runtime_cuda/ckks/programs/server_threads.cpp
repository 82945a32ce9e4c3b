// Eight threads on one server and its clients, and eight that play the functions of a record while
// another one adds to it. Prints the greatest error of each. Usage: FOLDER
#include <algorithm>
#include <cmath>
#include <cstring>
#include <iostream>
#include <memory>
#include <thread>

#include "atlasc/backend.hpp"
#include "atlasc/roles.hpp"
#include "runtime_cuda/examples/program.hpp"

namespace {

using namespace atlasc;

constexpr std::size_t thread_count = 8;
constexpr int functions = 40;

template <typename Work>
void in_threads(Work work) {
    std::vector<std::thread> threads;
    for (std::size_t at = 0; at < thread_count; ++at) {
        threads.emplace_back(work, at);
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
}

/// Each thread asks the server some queries of its own, as bytes, and reads the answers.
void queries(const std::string& folder) {
    make_keys(interface(), folder + "/keys");
    Client client(interface(), folder + "/keys/secret.key");
    Server server(interface(), execute, folder + "/keys/evaluation.key");
    double errors[thread_count] = {};
    in_threads([&](std::size_t thread) {
        for (int round = 0; round < 3; ++round) {
            const double number = 0.01 * static_cast<double>(1 + thread) + 0.1 * round;
            const Tensor x{{1, 8}, Vector(8, number)};
            Bytes answer = server.execute(PlainFile("query", client.encrypt({{"x", x}}).bytes));
            const Answers found = client.decrypt(PlainFile("answer", std::move(answer)));
            const double error = std::fabs(found.outputs.at("y").values.at(0) - 3.5 * number);
            errors[thread] = std::max(errors[thread], found.refused.empty() ? error : 1.0);
        }
    });
    for (const double error : errors) {
        std::cout << error << '\n';
    }
}

Bytes bytes_of(const std::vector<std::int32_t>& numbers) {
    Bytes bytes(numbers.size() * sizeof(std::int32_t));
    std::memcpy(bytes.data(), numbers.data(), bytes.size());
    return bytes;
}

/// Adds the function "f<number>", which negates its operand.
void grow(Record& record, int number) {
    const std::vector<std::int32_t> code = {
        0, 0,                          // no tables, no plaintexts
        1, 1, 2, 0, 1,                 // one operand of one ciphertext, 2 registers, 1 instruction
        2, 1, 0, 0, 0, 1, 1, 1, 0,     // %1 = negate %0, and %0 is released
        1, 1,                          // return %1
    };
    const std::string name = "f" + std::to_string(number);
    record.add([&](const std::string& array) {
        return array == "record/code"    ? bytes_of(code)
               : array == "record/names" ? Bytes(name.begin(), name.end())
                                         : Bytes();
    });
}

void growing_record() {
    const auto engine = built_backend().fresh_engine(interface(), {});
    Record record;
    grow(record, 0);
    const Ciphertext x = engine->encrypt(Vector(engine->slots(), 0.5), 1);
    double errors[thread_count] = {};
    in_threads([&](std::size_t thread) {
        for (int number = 1; number < functions; ++number) {
            if (thread == 0) {
                grow(record, number);
                continue;
            }
            const std::string name = "f" + std::to_string(number / 2);
            if (!record.has(name)) {
                continue;
            }
            Arrays none({});
            const Ciphertexts found = replay(*engine, record, record.function(name), none, {{x}});
            errors[thread] = std::max(errors[thread],
                                      std::fabs(engine->decrypt(found.at(0))[0] + 0.5));
        }
    });
    for (const double error : errors) {
        std::cout << error << '\n';
    }
}

}  // namespace

int main(int, char** argv) {
    return reported([&] {
        queries(argv[1]);
        growing_record();
    });
}
