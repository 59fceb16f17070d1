// SPDX-License-Identifier: Apache-2.0
#include "options.h"

#include <functional>
#include <map>
#include <set>

#include "output_file.h"

namespace aclgrad::train {

const char* const kUsage =
    "usage: train [options] <text file>\n"
    "\n"
    "Trains a byte-level transformer on the text.\n"
    "\n"
    "  --text FILE       the text, in place of the last argument\n"
    "  --steps N         train until step N (800)\n"
    "  --size NAME       base, or small for a quick look (base)\n"
    "  --dtype NAME      fp32 or bf16; bf16 keeps FP32 master weights (fp32)\n"
    "  --threads N       threads; any number gives the same bits (all CPUs)\n"
    "  --seed N          of the first weights and the order of the text (1)\n"
    "  --save FILE       write a checkpoint at the end\n"
    "  --save-every N    and every N steps\n"
    "  --load FILE       continue from a checkpoint, with the seed that it was begun with\n"
    "  --curve FILE.svg  draw the loss\n"
    "  --sample N        bytes of generated text before and after (300)\n"
    "  --goal            fail unless the validation loss is at most 0.95 of the bigram entropy\n"
    "  --check           compare gradients and losses with PyTorch, and with differences in\n"
    "                    float64, on the text or on this program's documentation; runs the\n"
    "                    python ACLGRAD_ORACLE_PYTHON, or one that is found to have PyTorch;\n"
    "                    goes without steps, goal, sample, and what writes a file\n"
    "  --help            this text\n";

namespace {

uint64_t number(const std::string& flag, const std::string& text, uint64_t least, uint64_t most) {
  constexpr size_t kMostDigits = 18;
  const bool digits = !text.empty() && text.size() <= kMostDigits &&
                      text.find_first_not_of("0123456789") == std::string::npos;
  const uint64_t value = digits ? std::stoull(text) : 0;
  if (!digits || value < least || value > most) {
    throw UsageError(flag + " takes a number from " + std::to_string(least) + " to " +
                     std::to_string(most) + ", not '" + text + "'");
  }
  return value;
}

aclDataType dtype_of(const std::string& text) {
  if (text == "fp32") return ACL_FLOAT;
  if (text == "bf16") return ACL_BF16;
  throw UsageError("--dtype is fp32 or bf16, not '" + text + "'");
}

using Setter = std::function<void(const std::string&)>;

// The flags that take a value.
std::map<std::string, Setter> setters(Options& o) {
  constexpr uint64_t kMany = 1000000000;
  constexpr uint64_t kMostThreads = 1024, kMostSample = 100000;
  const auto file = [](std::string& to, const char* flag) {
    return [&to, flag](const std::string& v) {
      if (v.empty()) throw UsageError(std::string(flag) + " takes the name of a file");
      to = v;
    };
  };
  return {
      {"--text", file(o.text, "--text")},
      {"--save", file(o.save, "--save")},
      {"--load", file(o.load, "--load")},
      {"--curve", file(o.curve, "--curve")},
      {"--size",
       [&o](const std::string& v) {
         if (v != "small" && v != "base") {
           throw UsageError("--size is small or base, not '" + v + "'");
         }
         o.size = v;
       }},
      {"--dtype", [&o](const std::string& v) { o.dtype = dtype_of(v); }},
      {"--steps", [&o](const std::string& v) { o.steps = number("--steps", v, 0, kMany); }},
      {"--threads",
       [&o](const std::string& v) { o.threads = number("--threads", v, 1, kMostThreads); }},
      {"--seed", [&o](const std::string& v) { o.seed = number("--seed", v, 0, kMany); }},
      {"--save-every",
       [&o](const std::string& v) { o.save_every = number("--save-every", v, 1, kMany); }},
      {"--sample",
       [&o](const std::string& v) { o.sample = number("--sample", v, 0, kMostSample); }},
  };
}

void expect_none_that_check_ignores(const std::set<std::string>& given) {
  for (const char* flag : {"--steps", "--save", "--save-every", "--curve", "--sample", "--goal"}) {
    if (given.count(flag) == 0) continue;
    throw UsageError("--check takes its own steps and writes nothing: it goes without " +
                     std::string(flag));
  }
}

}  // namespace

Options parse_options(const std::vector<std::string>& arguments) {
  Options options;
  const std::map<std::string, Setter> with_value = setters(options);
  const std::map<std::string, bool*> switches = {{"--help", &options.help},
                                                 {"-h", &options.help},
                                                 {"--check", &options.check},
                                                 {"--goal", &options.goal}};
  std::set<std::string> given;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    const size_t equals = argument.find('=');
    const std::string flag = argument.substr(0, equals);
    given.insert(flag);
    if (const auto on = switches.find(flag); on != switches.end()) {
      if (equals != std::string::npos) throw UsageError(flag + " takes no value");
      *on->second = true;
    } else if (const auto found = with_value.find(flag); found != with_value.end()) {
      if (equals == std::string::npos && i + 1 == arguments.size()) {
        throw UsageError(flag + " needs a value");
      }
      found->second(equals == std::string::npos ? arguments[++i] : argument.substr(equals + 1));
    } else if (argument.size() > 1 && argument[0] == '-') {
      throw UsageError("there is no flag " + flag);
    } else if (!options.text.empty()) {
      throw UsageError("one text only: '" + options.text + "' or '" + argument + "'?");
    } else if (argument.empty()) {
      throw UsageError("the name of the text is empty");
    } else {
      options.text = argument;
    }
  }
  if (options.help) return options;
  if (options.text.empty() && !options.check) throw UsageError("the text to train on is missing");
  if (options.save_every > 0 && options.save.empty()) {
    throw UsageError("--save-every needs --save");
  }
  if (options.check) expect_none_that_check_ignores(given);
  return options;
}

void expect_apart(const Options& o) {
  const std::string the_text = "the text " + o.text, loaded = "the checkpoint " + o.load;
  const auto refuse_if = [](bool same, const std::string& flag, const std::string& what) {
    if (same) throw UsageError(flag + " would overwrite " + what);
  };
  if (!o.save.empty()) {
    refuse_if(would_overwrite(o.save, o.text), "--save", the_text);
    // A run may go on in the checkpoint that it began with.
    refuse_if(!o.load.empty() && would_overwrite_on_the_way(o.save, o.load), "--save", loaded);
    refuse_if(!o.curve.empty() && would_overwrite(o.save, o.curve), "--save", "the --curve");
  }
  if (!o.curve.empty()) {
    refuse_if(would_overwrite(o.curve, o.text), "--curve", the_text);
    refuse_if(!o.load.empty() && would_overwrite(o.curve, o.load), "--curve", loaded);
    refuse_if(!o.save.empty() && would_overwrite(o.curve, o.save), "--curve", "the --save");
  }
}

}  // namespace aclgrad::train
