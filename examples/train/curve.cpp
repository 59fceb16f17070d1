// SPDX-License-Identifier: Apache-2.0
#include "curve.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <sstream>

#include "output_file.h"

namespace aclgrad::train {
namespace {

constexpr double kWidth = 800, kHeight = 450, kLeft = 60, kRight = 170, kTop = 40, kBottom = 50;

class Picture {
 public:
  explicit Picture(const Curve& curve) {
    for (const auto* points : {&curve.training, &curve.validation}) {
      for (const Point& point : *points) {
        last_ = std::max(last_, static_cast<double>(point.step));
        highest_ = std::max(highest_, point.loss);
      }
    }
    highest_ = std::ceil(std::max(highest_, curve.unigram));
    out_ << "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " << kWidth << ' ' << kHeight
         << "\" font-family=\"sans-serif\" font-size=\"12\">\n"
         << "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
    label(kLeft, kTop - 16, "start", "black", "loss, nats a byte");
    label(kWidth - kRight, kHeight - 12, "end", "black", "step");
  }

  void axes() {
    for (int loss = 0; loss <= static_cast<int>(highest_); ++loss) {
      line(loss, "#e0e0e0", "");
      label(kLeft - 8, y(loss) + 4, "end", "black", std::to_string(loss));
    }
    constexpr int kMarks = 5;
    for (int i = 0; i <= kMarks; ++i) {
      const double step = last_ * i / kMarks;
      label(x(step), kHeight - kBottom + 18, "middle", "black",
            std::to_string(static_cast<long>(step)));
    }
  }
  // `down`: how far below its line the name stands, in pixels.
  void level(double loss, const char* colour, const std::string& name, double down) {
    line(loss, colour, " stroke-dasharray=\"6 4\"");
    char text[64];
    std::snprintf(text, sizeof(text), "%s %.3f", name.c_str(), loss);
    label(kWidth - kRight + 6, y(loss) + down, "start", colour, text);
  }
  void path(const std::vector<Point>& points, const char* colour, double width) {
    out_ << "<polyline fill=\"none\" stroke=\"" << colour << "\" stroke-width=\"" << width
         << "\" points=\"";
    for (const Point& point : points) {
      out_ << x(static_cast<double>(point.step)) << ',' << y(point.loss) << ' ';
    }
    out_ << "\"/>\n";
  }
  void dots(const std::vector<Point>& points, const char* colour) {
    for (const Point& point : points) {
      out_ << "<circle r=\"3\" fill=\"" << colour << "\" cx=\""
           << x(static_cast<double>(point.step)) << "\" cy=\"" << y(point.loss) << "\"/>\n";
    }
  }
  void label(double at_x, double at_y, const char* anchor, const char* colour,
             const std::string& text) {
    out_ << "<text x=\"" << at_x << "\" y=\"" << at_y << "\" text-anchor=\"" << anchor
         << "\" fill=\"" << colour << "\">" << text << "</text>\n";
  }
  std::string finish() { return out_.str() + "</svg>\n"; }

 private:
  double x(double step) const { return kLeft + (kWidth - kLeft - kRight) * step / last_; }
  double y(double loss) const {
    return kHeight - kBottom - (kHeight - kTop - kBottom) * loss / highest_;
  }
  void line(double loss, const char* colour, const char* more) {
    out_ << "<line x1=\"" << kLeft << "\" x2=\"" << kWidth - kRight << "\" y1=\"" << y(loss)
         << "\" y2=\"" << y(loss) << "\" stroke=\"" << colour << '"' << more << "/>\n";
  }
  std::ostringstream out_;
  double last_ = 1, highest_ = 1;
};

}  // namespace

void draw_curve(const std::string& path, const Curve& curve) {
  Picture picture(curve);
  picture.axes();
  picture.level(curve.unigram, "#808080", "unigram entropy", 4);
  picture.level(curve.bigram, "#806000", "bigram entropy", 0);
  picture.level(curve.goal, "#008040", "goal", 12);  // the goal is close below
  picture.path(curve.training, "#4080c0", 1);
  picture.path(curve.validation, "#c03030", 2);
  picture.dots(curve.validation, "#c03030");
  picture.label(kWidth - kRight - 8, kTop + 4, "end", "#4080c0", "training");
  picture.label(kWidth - kRight - 8, kTop + 20, "end", "#c03030", "validation");
  const std::string text = picture.finish();
  OutputFile file(path);
  file.write(text.data(), text.size());
  file.keep();
}

}  // namespace aclgrad::train
