// Pascal VOC on small folders: masks, boxes, and malformed lists and annotations.
#include "gradus/data/sets/voc.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradus/data/dataloader.h"
#include "gradus/tests/support/error.h"
#include "gradus/tests/support/scratch.h"

namespace gradus::data {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string object(const std::string& name, const std::string& box) {
  return "<object>\n\t<name>" + name + "</name><difficult>0</difficult>" + box + "</object>";
}
std::string box(const std::string& x_min, const std::string& y_min, const std::string& x_max,
                const std::string& y_max) {
  return "<bndbox><xmin>" + x_min + "</xmin><ymin>" + y_min + "</ymin>\n<xmax>" + x_max + "</xmax><ymax>" +
         y_max + "</ymax></bndbox>";
}
const std::string kAnnotation =
    "<?xml version=\"1.0\"?>\n<!-- <object> -->\n<annotation verified=\"yes\">\n  "
    "<filename>a.jpg</filename><owner/>\n" +
    object("dog", box("48", "240.5", "195", "371")) +
    "<object><part><name>head</name><bndbox><xmin>9</xmin></bndbox></part><name> person </name>"
    "<truncated>1</truncated><difficult>1</difficult>" +
    box("8", "12", "352", "498") + "</object>\n</annotation>\n";

class VocTest : public ::testing::Test {
 protected:
  void write(const fs::path& name, const std::string& content) {
    fs::create_directories((scratch_.dir() / name).parent_path());
    std::ofstream(scratch_.dir() / name) << content;
  }
  void copy(const fs::path& name, const std::string& image) {
    fs::create_directories((scratch_.dir() / name).parent_path());
    fs::copy("tests/data/golden/images/" + image, scratch_.dir() / name);
  }
  std::string error(const std::string& annotation) {
    write("x.xml", annotation);
    return error_of<FileError>([&] { read_voc_annotation(scratch_ / "x.xml"); });
  }
  const Scratch scratch_;
};

TEST_F(VocTest, AnnotationsHaveObjects) {
  write("a.xml", kAnnotation);
  const std::vector<VocObject> objects = read_voc_annotation(scratch_ / "a.xml");
  ASSERT_EQ(objects.size(), 2u);
  EXPECT_EQ(objects[0].name, "dog");
  EXPECT_EQ(objects[0].x_min, 48);
  EXPECT_EQ(objects[0].y_min, 240.5);
  EXPECT_EQ(objects[0].x_max, 195);
  EXPECT_EQ(objects[0].y_max, 371);
  EXPECT_FALSE(objects[0].difficult || objects[0].truncated);
  EXPECT_EQ(objects[1].name, "person") << "not the name of its part";
  EXPECT_EQ(objects[1].x_min, 8);
  EXPECT_TRUE(objects[1].difficult && objects[1].truncated);
  write("none.xml", "<annotation/>");
  EXPECT_TRUE(read_voc_annotation(scratch_ / "none.xml").empty());
}

TEST_F(VocTest, MalformedAnnotationsAreErrors) {
  const auto in = [](const std::string& text) { return "<annotation>" + text + "</annotation>"; };
  EXPECT_THAT(error(in(object("dog", ""))), HasSubstr("object 1 needs a bndbox"));
  EXPECT_THAT(error(in(object("", box("1", "1", "2", "2")))), HasSubstr("no name"));
  for (const char* bad : {"", "x", "-1", "2", "3", "nan", "inf", "1e999", "1 1", "0x1"})
    EXPECT_THAT(error(in(object("dog", box(bad, "1", "2", "2")))), HasSubstr("bndbox")) << bad;
  EXPECT_THAT(error(in(object("dog", box("1", "1", "1e30", "2")))), HasSubstr("bndbox"));
  EXPECT_THAT(
      error(in(object("dog", box("1", "1", "2", "2")) + object("cat", "<bndbox><xmin>1</xmin></bndbox>"))),
      HasSubstr("object 2 needs"));
  EXPECT_THAT(error(""), HasSubstr("empty"));
  EXPECT_THAT(error("\n"), HasSubstr("ends within <>"));
  EXPECT_THAT(error("no xml"), HasSubstr("expected an XML element"));
  EXPECT_THAT(error("<a></a>text"), HasSubstr("expected an XML element"));
  EXPECT_THAT(error("<a></a><b></b>"), HasSubstr("one root"));
  EXPECT_THAT(error("<a><b></a></b>"), HasSubstr("</a> does not end <a/b>"));
  EXPECT_THAT(error("<a></b>"), HasSubstr("</b> does not end <a>"));
  EXPECT_THAT(error("</a>"), HasSubstr("</a> does not end <>"));
  EXPECT_THAT(error("<a"), HasSubstr("does not end"));
  EXPECT_THAT(error("<a><!-- </a>"), HasSubstr("does not end"));
  EXPECT_THAT(error("<>"), HasSubstr("not supported"));
  EXPECT_THAT(error("<!DOCTYPE a [<!ENTITY b \"c\">]><a></a>"), HasSubstr("not supported"));
  std::string deep, cut = kAnnotation;
  for (int i = 0; i < 100'000; ++i) deep += "<a>";
  EXPECT_THAT(error(deep), HasSubstr("16 deep"));
  EXPECT_THAT(error(std::string(2 << 20, 'x')), HasSubstr("1048576 bytes"));
  EXPECT_LT(error("<a>" + std::string(1 << 19, 'x') + "</b>").size(), 1000u);
  const size_t end = kAnnotation.find("</annotation>") + 13;
  for (size_t size = 0; size < end; ++size)
    EXPECT_NE(error(kAnnotation.substr(0, size)), "no error") << "cut after " << size << " bytes";
}

TEST_F(VocTest, DetectionHasARowForEachObject) {
  write("ImageSets/Main/train.txt", "a\nb\n");
  copy("JPEGImages/a.jpg", "rgb.jpg");
  copy("JPEGImages/b.jpg", "rgb.jpg");
  write("Annotations/a.xml", kAnnotation);
  write("Annotations/b.xml", "<annotation></annotation>");
  const VOCDetection train(scratch_.dir(), "train", {.max_objects = 3});
  EXPECT_EQ(train.size(), 2);
  DataLoader loader(train, {.batch_size = 2});
  const auto it = loader.begin();
  EXPECT_EQ(it->target.shape(), Shape({2, 3, 6}));
  EXPECT_THAT(it->target.to_vector<float>(),
              ElementsAre(48, 240.5f, 195, 371, 12, 0, 8, 12, 352, 498, 15, 1, -1, -1, -1, -1, -1, -1,  //
                          -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1));
  EXPECT_EQ(voc_classes()[12], "dog");
  EXPECT_EQ(voc_classes()[15], "person");
  EXPECT_EQ(voc_classes().size(), 21u);

  const VOCDetection own(scratch_.dir(), "train", {.classes = {"person", "dog"}, .max_objects = 2});
  EXPECT_EQ(own.get(0).target.to_vector<float>()[4], 1);
  EXPECT_ERROR(FileError, VOCDetection(scratch_.dir(), "train", {.max_objects = 1}), "a.xml",
               "max_objects = 1");
  EXPECT_ERROR(FileError, VOCDetection(scratch_.dir(), "train", {.classes = {"dog"}}), "a.xml", "'person'");
  EXPECT_ERROR(ValueError, VOCDetection(scratch_.dir(), "train", {.max_objects = 0}), "max_objects");
  EXPECT_ERROR(FileError, VOCDetection(scratch_.dir(), "val"), "val.txt");
  fs::remove(scratch_ / "Annotations/b.xml");
  EXPECT_ERROR(FileError, VOCDetection(scratch_.dir(), "train"), "b.xml");
}

TEST_F(VocTest, SegmentationHasPairs) {
  write("ImageSets/Segmentation/val.txt", "2007_000033\n\n2007_000042");
  EXPECT_EQ(voc_segmentation(scratch_.dir(), "val").size(), 2u) << "blank lines do not count";
  copy("JPEGImages/2007_000033.jpg", "rgb_8.png");
  copy("SegmentationClass/2007_000033.png", "palette_8.png");
  write("ImageSets/Segmentation/val.txt", "2007_000033\r\n");
  const SegmentationFiles val(voc_segmentation(scratch_.dir(), "val"));
  EXPECT_EQ(val.size(), 1);
  EXPECT_EQ(val.get(0).target.shape(), Shape({val.get(0).input.size(1), val.get(0).input.size(2)}));
  EXPECT_EQ(val.file(0).mask, scratch_.dir() / "SegmentationClass/2007_000033.png");
}

TEST_F(VocTest, MalformedListsAreErrors) {
  for (const std::string list : {"", "\n \n", "../../etc/passwd", "a\n..\n"}) {
    write("ImageSets/Segmentation/train.txt", list);
    EXPECT_NE(error_of<FileError>([&] { voc_segmentation(scratch_.dir(), "train"); }), "no error") << list;
  }
  write("ImageSets/Main/dog_train.txt", "a  1\nb -1\n");
  copy("JPEGImages/a.jpg", "rgb.jpg");
  write("Annotations/a.xml", kAnnotation);
  write("Annotations/b.xml", kAnnotation);
  EXPECT_EQ(VOCDetection(scratch_.dir(), "dog_train").size(), 2) << "a list of a class has a second column";
}

}  // namespace
}  // namespace gradus::data
