// Readers of the runtime on changed files:
//
//   fuzz --seed N --inputs K --reader NAME --corpus DIR [--first I]
//
// Reads the files of DIR/NAME as they are, then K changed files. Input I depends on N and I alone.
// Fails on anything thrown but an Error, on a changed file that is taken and gives other content,
// on 10 s for one input, and on a gigabyte of memory; sanitizers find the rest.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <map>
#include <memory>

#include "atlasc/backend.hpp"
#include "atlasc/base/json.hpp"
#include "atlasc/ledger.hpp"
#include "atlasc/program_file.hpp"
#include "atlasc/roles.hpp"
#include "memory.hpp"
#include "mutate.hpp"
#include "program.hpp"

namespace {

namespace fs = std::filesystem;
using namespace atlasc;

constexpr unsigned most_seconds = 10;
constexpr long most_memory = 1L << 20;  // in kB

/// What the alarm's handler says.
std::string current;

/// What a reader took from a file, for comparison; an Error is nothing.
using Reader = std::function<std::string(const std::string& path)>;

std::string content_of(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

void store(const fs::path& path, const std::string& content) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
    fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write);
}

std::string text_of(const Tensor& tensor) {
    std::string text;
    for (const std::size_t extent : tensor.shape) {
        text += std::to_string(extent) + " ";
    }
    return text + std::string(reinterpret_cast<const char*>(tensor.values.data()),
                              tensor.values.size() * sizeof(double));
}

std::string text_of(const Message& message, const Engine& engine) {
    std::string text = message.query + " " + std::to_string(message.count);
    for (const auto& [name, packed] : message.values) {
        for (const Ciphertext& part : packed) {
            const Bytes bytes = engine.save(part);
            text += name + std::string(bytes.begin(), bytes.end());
        }
    }
    for (const auto& [name, tensor] : message.publics) {
        text += name + text_of(tensor);
    }
    return text;
}

/// A client and a server with all their files, in a folder of their own.
class Bench {
public:
    explicit Bench(const fs::path& folder) : folder_(folder), facts_(small::interface()) {
        small::write_weights(at("weights"));
        small::write_program(at("program"), "program", small::text());
        store(at("program.json"), small::text());
        make_keys(facts_, at("keys"));
        built_backend().generate_keys(
            facts_, {at("other.secret"), at("other.evaluation"), at("public")}, {});
        client_ = built_backend().client_engine(facts_, at("keys/secret.key"));
        server_ = std::make_unique<Server>(facts_, small::execute, at("keys/evaluation.key"),
                                           PlainFile(at("weights")));
        const Message query = encrypted(packed(facts_, small::inputs(2), false), facts_, *client_);
        write_message(at("query"), "query", facts_, *client_, query);
        write_message(at("answer"), "answer", facts_, server_->engine(), executed(at("query")));
        const Bytes one = server_->engine().save(query.values.at("x").at(0));
        store(at("ciphertext"), std::string(one.begin(), one.end()));
        const Engine& engine = server_->engine();
        const Ciphertext& computed = server_->engine().negate(query.values.at("x").at(0));
        const Bytes packed = engine.save(computed);
        std::string unpacked(engine.largest_size(engine.level(computed)), '\0');
        std::copy(one.begin(), one.begin() + 36, unpacked.begin());  // its identity and level
        forms_ = {{one.begin(), one.end()}, {packed.begin(), packed.end()}, unpacked};
        fs::create_directory(at("asked"));
        Ledger ledger(at("asked"));
        asked_ = {query.query, facts_.identity, 2, std::string(64, '2')};
        ledger.add({query.query, facts_.identity, 2}, "");
        ledger.add({std::string(32, '1'), facts_.identity, 1}, "it is \"large\"");
        ledger.answer(asked_);
    }

    std::string at(const std::string& name) const { return (folder_ / name).string(); }

    /// Of ciphertexts: with a seed, as residues, and as version 0.1.0 wrote them.
    const std::vector<std::string>& forms() const { return forms_; }

    /// By name: a valid file, and what reads such a one.
    std::map<std::string, std::pair<std::string, Reader>> readers() {
        return {
            {"json", {"header.json", [](const std::string& path) {
                          parse_json(content_of(path));
                          return std::string();
                      }}},
            {"header", {"query", [](const std::string& path) { return arrays(TensorFile(path)); }}},
            {"query", {"query", [this](const std::string& path) {
                           const Message query = read_message(TensorFile(path), "query", facts_,
                                                              server_->engine());
                           return text_of(query, server_->engine()) +
                                  text_of(executed(path), server_->engine());
                       }}},
            {"answer", {"answer", [this](const std::string& path) {
                            return text_of_answer(*client_, path);
                        }}},
            {"secret", {"keys/secret.key", [this](const std::string& path) {
                            const auto client =
                                built_backend().client_engine(facts_, path);
                            return text_of_answer(*client, at("answer"));
                        }}},
            {"evaluation", {"keys/evaluation.key", [this](const std::string& path) {
                                Server server(facts_, small::execute, path,
                                              PlainFile(at("weights")));
                                return text_of(server.execute(read_message(
                                                   TensorFile(at("query")), "query", facts_,
                                                   server.engine())),
                                               server.engine());
                            }}},
            {"public", {"public", [this](const std::string& path) {
                            const auto anybody = built_backend().public_engine(facts_, path);
                            anybody->encrypt(Vector(anybody->slots(), 0.5), 0);
                            return std::string();
                        }}},
            {"ciphertext", {"ciphertext", [this](const std::string& path) {
                                const std::string content = content_of(path);
                                Engine& engine = server_->engine();
                                const Bytes bytes(content.begin(), content.end());
                                const Bytes kept = engine.save(engine.load(bytes));
                                return std::string(kept.begin(), kept.end());
                            }}},
            {"weights", {"weights", [this](const std::string& path) {
                             const Server server(facts_, small::execute,
                                                 at("keys/evaluation.key"), PlainFile(path));
                             return arrays(TensorFile(path));
                         }}},
            {"program", {"program", [this](const std::string& path) { return played(path); }}},
            {"text", {"program.json", [this](const std::string& path) {
                          for (const std::string name : {"interface", "program"}) {
                              fs::remove(at("of-text"));
                              small::write_program(at("of-text"), name, content_of(path));
                              if (name == "interface") {
                                  packed(read_interface(TensorFile(at("of-text"))),
                                         small::inputs(2), false);
                              }
                          }
                          return played(at("of-text"));
                      }}},
            {"ledger", {"asked/ledger.jsonl", [this](const std::string& path) {
                            fs::create_directories(at("changed"));
                            fs::copy_file(path, at("changed/ledger.jsonl"),
                                          fs::copy_options::overwrite_existing);
                            Ledger(at("changed")).answer(asked_);
                            return std::string();
                        }}}};
    }

private:
    static std::string arrays(const TensorFile& file) {
        std::string text;
        for (const std::string& name : file.names()) {
            const bool bytes = file.type(name) == "U8";
            const Bytes raw = bytes ? file.bytes(name) : Bytes();
            text += name + (bytes ? std::string(raw.begin(), raw.end())
                                  : text_of(file.tensor(name)));
        }
        return text;
    }

    /// The answer of the program in a file to the query.
    std::string played(const std::string& path) {
        const StoredProgram stored{TensorFile(path)};
        Server server(
            stored.interface(),
            [&stored](Context& context, Values inputs) {
                return stored.execute(context, std::move(inputs));
            },
            at("keys/evaluation.key"), PlainFile(path));
        return text_of(server.execute(read_message(TensorFile(at("query")), "query",
                                                   stored.interface(), server.engine())),
                       server.engine());
    }

    Message executed(const std::string& query) {
        return server_->execute(
            read_message(TensorFile(query), "query", facts_, server_->engine()));
    }

    std::string text_of_answer(Engine& client, const std::string& path) const {
        const Message answer = read_message(TensorFile(path), "answer", facts_, client);
        const NamedSlots slots = decrypted(answer, facts_, client);
        return text_of(answers(facts_, slots, answer.count).outputs.at("y")) + answer.query;
    }

    fs::path folder_;
    const Interface& facts_;
    std::unique_ptr<Engine> client_;
    std::unique_ptr<Server> server_;
    Ledger::Entry asked_;
    std::vector<std::string> forms_;
};

/// In a fixed order; none where there is no folder.
std::vector<fs::path> files_in(const fs::path& folder) {
    std::vector<fs::path> files;
    if (fs::is_directory(folder)) {
        files.assign(fs::directory_iterator(folder), fs::directory_iterator());
    }
    std::sort(files.begin(), files.end());
    return files;
}

[[noreturn]] void fail(const std::string& why, const fs::path& file) {
    const fs::path kept = "fuzz-failure";
    fs::copy_file(file, kept, fs::copy_options::overwrite_existing);
    std::cout << "FAILED " << current << ": " << why << "; the input is in " << kept << std::endl;
    std::_Exit(1);
}

extern "C" void too_slow(int) {
    const std::string text = "FAILED " + current + ": it takes more than 10 s\n";
    if (::write(STDOUT_FILENO, text.data(), text.size()) >= 0) {
        std::_Exit(1);
    }
}

/// Whether the file was taken; `expected`: of whoever must not be misled.
bool taken(const Reader& reader, const fs::path& file, const std::string* expected) {
    ::alarm(most_seconds);
    bool result = false;
    try {
        const std::string content = reader(file.string());
        if (expected != nullptr && content != *expected) {
            fail("a changed file is taken, with other content", file);
        }
        result = true;
    } catch (const Error& error) {
        if (std::string(error.what()).empty()) {
            fail("an error without a message", file);
        }
    } catch (const std::exception& error) {
        fail(std::string("internal error: ") + error.what(), file);
    }
    ::alarm(0);
    if (peak_memory() > most_memory) {
        fail("more than a gigabyte of memory", file);
    }
    return result;
}

void run(const Options& options) {
    const std::uint64_t seed = std::strtoull(options["--seed"].c_str(), nullptr, 10);
    const std::uint64_t inputs = std::strtoull(options["--inputs"].c_str(), nullptr, 10);
    const std::uint64_t first =
        options.given("--first") ? std::strtoull(options["--first"].c_str(), nullptr, 10) : 0;
    const std::string name = options["--reader"];
    std::string place = (fs::temp_directory_path() / "fuzz-XXXXXX").string();
    if (::mkdtemp(place.data()) == nullptr) {
        throw Error("no temporary folder");
    }
    Bench bench(place);
    const std::string query = content_of(bench.at("query"));
    store(bench.at("header.json"), query.substr(8, query.find('}', query.rfind("data_off")) - 6));
    const auto readers = bench.readers();
    if (readers.count(name) == 0) {
        throw Error("there is no reader " + name);
    }
    const auto& [valid, reader] = readers.at(name);
    std::vector<std::string> seeds = {content_of(bench.at(valid))};
    current = name + ", the valid file";
    const std::string expected = reader(bench.at(valid));
    const bool raw = name == "ciphertext";
    const std::vector<std::string>& forms = bench.forms();
    for (const std::string& form : forms) {
        store(bench.at("form"), fuzz::with_checksum(form));
        if (raw && built_backend().encrypts && !taken(reader, bench.at("form"), nullptr)) {
            fail("a form of ciphertexts is refused", bench.at("form"));
        }
    }
    const bool sealed = !raw && name != "json" && name != "weights" && name != "program" &&
                        name != "text" && name != "ledger";
    // Who reads any array, or what it wrote itself, has nothing to compare with.
    const bool compared =
        name != "json" && name != "header" && name != "text" && name != "ledger" &&
        name != "public" &&
        (!raw || built_backend().encrypts);  // a simulated ciphertext has no checksum
    const fs::path file = bench.at("input");
    const fs::path corpus = fs::path(options["--corpus"]) / name;
    for (const fs::path& found : files_in(corpus)) {
        current = found.string();
        store(file, content_of(found));
        taken(reader, file, compared ? &expected : nullptr);
        seeds.push_back(content_of(found));
    }
    std::uint64_t accepted = 0;
    for (std::uint64_t at = first; at < first + inputs; ++at) {
        current = name + ", --seed " + std::to_string(seed) + " --first " + std::to_string(at);
        std::seed_seq numbers{seed, at};
        fuzz::Random random(numbers);
        const bool forged = (sealed || raw) && random() % 2 == 0;
        const std::string& from = random() % 4 != 0 ? seeds[0] : seeds[random() % seeds.size()];
        store(file, !forged ? fuzz::mutated(from, random)
                    : raw   ? fuzz::with_checksum(fuzz::mutated(forms[at % forms.size()], random))
                            : fuzz::resealed(seeds[0], random));
        accepted += taken(reader, file, compared && !forged ? &expected : nullptr);
    }
    std::cout << name << ": seed " << seed << ", " << inputs << " inputs, " << accepted
              << " taken, " << seeds.size() - 1 << " of the corpus, " << peak_memory() / 1024
              << " MB\n";
    fs::remove_all(place);
}

}  // namespace

int main(int argc, char** argv) {
    ::signal(SIGALRM, too_slow);
    return reported([&] {
        run(Options(argc, argv, 1, "fuzz --seed N --inputs K --reader NAME --corpus DIR",
                    {"--seed", "--inputs", "--reader", "--corpus"}, {"--first"}));
    });
}
